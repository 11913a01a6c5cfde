/* key.c -- reads a config by a table of keys: kind, range, default and choices are the row's. */
#include "io/key.h"

#include "io/conf.h"
#include "io/number.h"
#include "io/units.h"

#include <stdio.h>
#include <string.h>

bool fr__has_name(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at++)
        if ((at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ',')) return true;
    return false;
}

void fr__append_name(char *text, size_t room, const char *name)
{
    size_t n = strlen(text);
    snprintf(text + n, room - n, "%s%s", n ? ", " : "", name);
}

/* --- rows ------------------------------------------------------------------------------------- */

const char *fr__key_name(const fr_key *k)
{
    const char *end = k->path + strlen(k->path);
    while (end > k->path && end[-1] != '.' && end[-1] != ':') end--;
    return end;
}

const fr_key *fr__key_next(const fr_key *k, const char *section, const char *user)
{
    size_t n = strlen(section);
    for (; k->path; k++)
        if (strncmp(k->path, section, n) == 0 && fr__key_name(k) == k->path + n &&
            (!user || !k->of || fr__has_name(k->of, user)))
            return k;
    return NULL;
}

const fr_key *fr__key_find(const fr_key *table, const char *section, const char *key,
                           const char *user)
{
    const fr_key *k = fr__key_next(table, section, user);
    while (k && strcmp(fr__key_name(k), key) != 0) k = fr__key_next(k + 1, section, user);
    return k;
}

int fr__key_choice(const fr_key *k, const char *name)
{
    for (int i = 0; k->choice(i); i++)
        if (strcmp(k->choice(i), name) == 0) return i;
    return -1;
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool follows(const fr_key *k) { return k->preset && k->preset[0] == '('; }
static bool is_open(const fr_key *k) { return !k->preset || !k->preset[0]; }

/* Beyond the limits stands for "no default": fr_conf_int leaves it out of the saved config. */
static fr_status read_int(fr_conf *c, const fr_key *k, void *to)
{
    bool is_short = k->size == sizeof(int);
    int64_t value = is_short ? *(int *)to : *(int64_t *)to, min = (int64_t)k->min;
    int64_t max = isinf(k->max) ? INT64_MAX : (int64_t)k->max;
    if (value == 0 && is_open(k))
        value = min - 1;
    else if (value == 0 && !follows(k))
        fr__int_scan(k->preset, &value);
    FR_TRY(fr_conf_int(c, fr__key_name(k), value, min, max, &value));
    if (value < min || value > max) return FR_OK;
    if (is_short)
        *(int *)to = (int)value;
    else
        *(int64_t *)to = value;
    return FR_OK;
}

static fr_status read_real(fr_conf *c, const fr_key *k, void *to)
{
    bool is_short = k->size == sizeof(float);
    double value = is_short ? (double)*(float *)to : *(double *)to;
    if (value == 0 && is_open(k))
        value = NAN;
    else if (value == 0 && !follows(k))
        fr__real_scan(k->preset, &value);
    FR_TRY(fr_conf_real(c, fr__key_name(k), value, k->min, k->max, &value));
    if (!(value >= k->min && value <= k->max)) return FR_OK;
    if (is_short)
        *(float *)to = (float)value;
    else
        *(double *)to = value;
    return FR_OK;
}

static fr_status check_choice(fr_conf *c, const fr_key *k, const char *name)
{
    char names[512] = "";
    if (!k->refusal || fr__key_choice(k, name) >= 0) return FR_OK;
    for (int i = 0; k->choice(i); i++) fr__append_name(names, sizeof names, k->choice(i));
    return fr_conf_fail(c, fr__key_name(k), k->refusal, name, names);
}

static fr_status read_text(fr_conf *c, const fr_key *k, const char **to)
{
    const char *key = fr__key_name(k), *preset = *to;
    if (!preset && !follows(k) && !is_open(k)) preset = k->preset[0] == '"' ? "" : k->preset;
    if (!preset && !k->preset && !fr_conf_has(c, key)) return FR_OK;
    FR_TRY((k->is_path ? fr__conf_data : fr_conf_text)(c, key, preset, to));
    return check_choice(c, k, *to);
}

fr_status fr__key_read(fr_conf *c, const fr_key *k, void *to)
{
    double *amount = to;
    bool *flag = to;
    switch (k->kind) {
    case FR_KEY_INT: return read_int(c, k, to);
    case FR_KEY_REAL: return read_real(c, k, to);
    case FR_KEY_BOOL:
        return fr_conf_bool(c, fr__key_name(k), *flag || strcmp(k->preset, "true") == 0, flag);
    case FR_KEY_AMOUNT:
        return fr__conf_amount(c, fr__key_name(k), (fr__amount_unit)k->unit, *amount, k->min,
                               k->max, amount);
    default: return read_text(c, k, to);
    }
}

fr_status fr__keys_read(fr_conf *c, const fr_key *table, const char *section, const char *user,
                        void *base)
{
    for (const fr_key *k = table; (k = fr__key_next(k, section, user)); k++)
        if (k->size) FR_TRY(fr__key_read(c, k, (char *)base + k->offset));
    return FR_OK;
}

fr_status fr__keys_read_listed(fr_conf *c, const fr_key *table, const char *section,
                               const char *const *keys, void *base)
{
    for (; *keys; keys++) {
        const fr_key *k = fr__key_find(table, section, *keys, NULL);
        if (!k || !k->size)
            return fr_conf_fail(c, NULL, "%s: a key without a place in the settings", *keys);
        FR_TRY(fr__key_read(c, k, (char *)base + k->offset));
    }
    return FR_OK;
}
