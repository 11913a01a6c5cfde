/* fixture.c -- reader of the fixtures from PyTorch. One pass over words; strict. */
#include "support/fixture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

typedef struct reader {
    const char *name;
    FILE *in;
    int line;
    char *text, *at; /* current line, and the position in it */
    size_t room;
} reader;

static void reject(const reader *r, const char *what)
{
    fail_msg("fixture %s, line %d: %s", r->name, r->line, what);
}

/* The next line that is not a comment; false at the end. */
static bool next_line(reader *r)
{
    while (getline(&r->text, &r->room, r->in) >= 0) {
        r->line++;
        r->at = r->text;
        if (r->text[0] != '#') return true;
    }
    return false;
}

/* The next word of the line, or NULL. */
static char *next_word(reader *r)
{
    while (isspace((unsigned char)*r->at)) r->at++;
    if (!*r->at) return NULL;
    char *word = r->at;
    while (*r->at && !isspace((unsigned char)*r->at)) r->at++;
    if (*r->at) *r->at++ = 0;
    return word;
}

static double number(const reader *r, const char *word)
{
    char *end;
    double v = strtod(word, &end);
    if (end == word || *end) reject(r, "not a number");
    return v;
}

static void copy_name(const reader *r, char *to, size_t room, const char *word)
{
    if (!word || strlen(word) >= room) {
        reject(r, "a name is missing or too long");
        return;
    }
    memcpy(to, word, strlen(word) + 1);
}

static void read_setting(reader *r, fixture_case *c)
{
    if (c->n_settings == FIXTURE_MAX_SETTINGS) reject(r, "too many settings");
    fixture_setting *s = &c->settings[c->n_settings++];
    copy_name(r, s->key, sizeof s->key, next_word(r));
    for (char *w; (w = next_word(r));) {
        if (s->n == FIXTURE_MAX_NUMBERS) reject(r, "too many numbers");
        s->v[s->n++] = number(r, w);
    }
}

static void read_tensor(reader *r, fixture_case *c)
{
    if (c->n_tensors == FIXTURE_MAX_TENSORS) reject(r, "too many tensors");
    fixture_tensor *t = &c->tensors[c->n_tensors++];
    copy_name(r, t->name, sizeof t->name, next_word(r));
    const char *type = next_word(r);
    if (!type || (strcmp(type, "f32") != 0 && strcmp(type, "i32") != 0)) reject(r, "bad type");
    t->is_int = type && type[0] == 'i';
    t->count = 1;
    for (char *w; (w = next_word(r));) {
        if (t->n_dims == FIXTURE_MAX_DIMS) reject(r, "too many dimensions");
        t->dim[t->n_dims] = (int64_t)number(r, w);
        t->count *= (size_t)t->dim[t->n_dims++];
    }
    void *data = calloc(t->count, 4);
    assert_non_null(data);
    t->f = t->is_int ? NULL : data;
    t->i = t->is_int ? data : NULL;
    for (size_t n = 0; n < t->count;) {
        if (!next_line(r)) reject(r, "the file ends inside a tensor");
        for (char *w; n < t->count && (w = next_word(r)); n++) {
            if (t->is_int)
                t->i[n] = (int32_t)number(r, w);
            else
                t->f[n] = (float)number(r, w);
        }
        if (next_word(r)) reject(r, "more numbers than the tensor holds");
    }
}

void fixture_load(fixture *f, const char *name)
{
    char path[1024];
    reader r = {.name = name};
    *f = (fixture){0};
    snprintf(path, sizeof path, "%s/fixtures/%s.txt", FR_TEST_DIR, name);
    r.in = fopen(path, "r");
    if (!r.in) fail_msg("cannot open %s", path);
    while (next_line(&r)) {
        const char *word = next_word(&r);
        if (!word) continue;
        if (strcmp(word, "case") == 0) {
            f->cases = realloc(f->cases, (size_t)(f->n_cases + 1) * sizeof *f->cases);
            assert_non_null(f->cases);
            f->cases[f->n_cases] = (fixture_case){0};
            copy_name(&r, f->cases[f->n_cases].name, sizeof f->cases->name, next_word(&r));
            f->n_cases++;
        } else if (f->n_cases && strcmp(word, "set") == 0) {
            read_setting(&r, &f->cases[f->n_cases - 1]);
        } else if (f->n_cases && strcmp(word, "tensor") == 0) {
            read_tensor(&r, &f->cases[f->n_cases - 1]);
        } else {
            reject(&r, "expected case, set or tensor");
        }
    }
    if (!f->n_cases) reject(&r, "no case");
    fclose(r.in);
    free(r.text);
}

void fixture_free(fixture *f)
{
    for (int c = 0; c < f->n_cases; c++)
        for (int t = 0; t < f->cases[c].n_tensors; t++) {
            free(f->cases[c].tensors[t].f);
            free(f->cases[c].tensors[t].i);
        }
    free(f->cases);
    *f = (fixture){0};
}

const fixture_tensor *fixture_find(const fixture_case *c, const char *name)
{
    for (int t = 0; t < c->n_tensors; t++)
        if (strcmp(c->tensors[t].name, name) == 0) return &c->tensors[t];
    return NULL;
}

const fixture_tensor *fixture_need(const fixture_case *c, const char *name)
{
    const fixture_tensor *t = fixture_find(c, name);
    if (!t) fail_msg("case %s has no tensor %s", c->name, name);
    return t;
}

double fixture_number(const fixture_case *c, const char *key, double otherwise)
{
    for (int i = 0; i < c->n_settings; i++)
        if (strcmp(c->settings[i].key, key) == 0) return c->settings[i].v[0];
    return otherwise;
}
