/* test_conf.c -- reading a config: values, positions in errors, unknown keys, overrides, limits. */
#include "support/check.h"

#include <forerun/io.h>
#include <inttypes.h>
#include <math.h>

static fr_ctx *ctx;

static fr_conf *parse(const char *text)
{
    fr_conf *c;
    assert_ok(ctx, fr_conf_parse(ctx, text, strlen(text), "run.yaml", &c));
    return c;
}

static fr_conf *section(fr_conf *c, const char *key)
{
    fr_conf *s;
    assert_ok(ctx, fr_conf_section(c, key, &s));
    return s;
}

/* --- values ------------------------------------------------------------------------------- */

static void values_and_defaults(void **state)
{
    (void)state;
    fr_conf *c = parse("i: -12\nr: 2.5e-3\nwhole: 3\nb: true\nt: some text\nq: \"12\"\nn: 12\n");
    int64_t i;
    double r;
    bool b;
    const char *t;
    assert_ok(ctx, fr_conf_int(c, "i", 5, -100, 100, &i));
    assert_int_equal(i, -12);
    assert_ok(ctx, fr_conf_int(c, "absent", 5, -100, 100, &i));
    assert_int_equal(i, 5);
    assert_ok(ctx, fr_conf_real(c, "r", 1, 0, 1, &r));
    assert_true(r == 2.5e-3);
    assert_ok(ctx, fr_conf_real(c, "whole", 1, 0, 10, &r));
    assert_true(r == 3);
    assert_ok(ctx, fr_conf_real(c, "absent2", NAN, 0, 10, &r));
    assert_true(isnan(r));
    assert_ok(ctx, fr_conf_bool(c, "b", false, &b));
    assert_true(b);
    assert_ok(ctx, fr_conf_bool(c, "absent3", true, &b));
    assert_true(b);
    assert_ok(ctx, fr_conf_text(c, "t", NULL, &t));
    assert_string_equal(t, "some text");
    assert_ok(ctx, fr_conf_text(c, "q", NULL, &t));
    assert_string_equal(t, "12");
    assert_ok(ctx, fr_conf_text(c, "n", NULL, &t)); /* a number may be a name */
    assert_string_equal(t, "12");
    assert_ok(ctx, fr_conf_text(c, "absent4", "preset", &t));
    assert_string_equal(t, "preset");
    assert_ok(ctx, fr_conf_int(c, "i", 5, -100, 100, &i)); /* reading again is allowed */
    assert_int_equal(i, -12);
    assert_ok(ctx, fr_conf_finish(c));
    fr_conf_free(c);
    fr_conf_free(NULL);
}

static void only_given_keys_are_had(void **state)
{
    (void)state;
    fr_conf *c = parse("a: 1\ns: {x: 1}\ne:\n");
    int64_t i;
    assert_true(fr_conf_has(c, "a"));
    assert_false(fr_conf_has(c, "b"));
    assert_ok(ctx, fr_conf_int(c, "b", 5, 0, 9, &i));
    assert_false(fr_conf_has(c, "b")); /* a default is not given */
    assert_true(fr_conf_is_mapping(c, "s"));
    assert_false(fr_conf_is_mapping(c, "a"));
    assert_false(fr_conf_is_mapping(c, "e"));
    assert_false(fr_conf_is_mapping(c, "b"));
    fr_conf_free(c);
}

static void sections(void **state)
{
    (void)state;
    fr_conf *c = parse("train:\n  batch: 8\nrun:\n");
    int64_t i;
    assert_ok(ctx, fr_conf_int(section(c, "train"), "batch", 1, 1, 99, &i));
    assert_int_equal(i, 8);
    assert_ok(ctx, fr_conf_int(section(c, "run"), "every", 3, 0, 9, &i)); /* given, but empty */
    assert_int_equal(i, 3);
    assert_ok(ctx, fr_conf_int(section(section(c, "none"), "below"), "k", 4, 0, 9, &i));
    assert_int_equal(i, 4);
    assert_ptr_equal(section(c, "train"), section(c, "train"));
    assert_ok(ctx, fr_conf_finish(c));
    fr_conf_free(c);
}

static void lists(void **state)
{
    (void)state;
    fr_conf *c = parse("l: [3, -1, 2]\none: 7\nempty: []\nt: [a, \"b c\", '3']\nname: x\n"
                       "layers:\n  - width: 3\n  - width: 4\n    act: relu\n  -\n");
    int64_t v[3];
    const char *t[3];
    int n;
    assert_ok(ctx, fr_conf_ints(c, "l", 3, v, &n));
    assert_int_equal(n, 3);
    assert_true(v[0] == 3 && v[1] == -1 && v[2] == 2);
    assert_ok(ctx, fr_conf_ints(c, "one", 3, v, &n));
    assert_true(n == 1 && v[0] == 7);
    assert_ok(ctx, fr_conf_ints(c, "empty", 3, v, &n));
    assert_int_equal(n, 0);
    assert_ok(ctx, fr_conf_ints(c, "absent", 3, v, &n));
    assert_int_equal(n, 0);
    assert_ok(ctx, fr_conf_texts(c, "t", 3, t, &n));
    assert_int_equal(n, 3);
    assert_string_equal(t[1], "b c");
    assert_string_equal(t[2], "3");
    assert_ok(ctx, fr_conf_texts(c, "name", 3, t, &n));
    assert_int_equal(n, 1);
    assert_int_equal(fr_conf_list_length(c, "layers"), 3);
    assert_int_equal(fr_conf_list_length(c, "absent"), -1);
    assert_int_equal(fr_conf_list_length(c, "one"), -1);
    fr_conf *item;
    const char *act;
    assert_ok(ctx, fr_conf_list_item(c, "layers", 1, &item));
    assert_ok(ctx, fr_conf_ints(item, "width", 3, v, &n));
    assert_int_equal(v[0], 4);
    assert_ok(ctx, fr_conf_text(item, "act", NULL, &act));
    assert_string_equal(act, "relu");
    assert_ok(ctx, fr_conf_list_item(c, "layers", 2, &item));
    assert_ok(ctx, fr_conf_text(item, "act", "none", &act));
    assert_fails(ctx, fr_conf_list_item(c, "layers", 3, &item), FR_INVALID, "the list has 3");
    assert_fails(ctx, fr_conf_list_item(c, "layers", -1, &item), FR_INVALID, "the list has 3");
    assert_null(item);
    assert_fails(ctx, fr_conf_list_item(c, "l", 1, &item), FR_INVALID,
                 "run.yaml:1:8: l[1]: expected a mapping (key: value), found \"-1\"");
    assert_fails(ctx, fr_conf_finish(c), FR_INVALID, "run.yaml:7:5: unknown key layers[0].width");
    fr_conf_free(c);
}

static void aliases(void **state)
{
    (void)state;
    fr_conf *c = parse("a: &x {k: 1, l: &y [1, 2]}\nb: *x\nc: *y\n");
    int64_t v[2];
    int n;
    assert_ok(ctx, fr_conf_int(section(c, "b"), "k", 0, 0, 9, v));
    assert_int_equal(v[0], 1);
    assert_ok(ctx, fr_conf_ints(c, "c", 2, v, &n));
    assert_int_equal(n, 2);
    /* reading one copy does not make the other known */
    assert_ok(ctx, fr_conf_ints(section(c, "b"), "l", 2, v, &n));
    section(c, "a");
    assert_fails(ctx, fr_conf_finish(c), FR_INVALID, "unknown key a.k");
    fr_conf_free(c);
}

/* --- errors ------------------------------------------------------------------------------- */

static fr_status ask(fr_conf *c, char type, const char *key)
{
    int64_t i, many[2];
    double r;
    bool b;
    const char *t, *ts[2];
    int n;
    fr_conf *s;
    switch (type) {
    case 'i': return fr_conf_int(c, key, 1, 1, 1048576, &i);
    case 'j': return fr_conf_int(c, key, 1, INT64_MIN, INT64_MAX, &i);
    case 'k': return fr_conf_int(c, key, 1, 2, INT64_MAX, &i);
    case 'r': return fr_conf_real(c, key, 1, 0, 0.5, &r);
    case 's': return fr_conf_real(c, key, 1, 0, INFINITY, &r);
    case 'b': return fr_conf_bool(c, key, true, &b);
    case 't': return fr_conf_text(c, key, NULL, &t);
    case 'I': return fr_conf_ints(c, key, 2, many, &n);
    case 'T': return fr_conf_texts(c, key, 2, ts, &n);
    case 'S': return fr_conf_section(c, key, &s);
    case 'L': return fr_conf_list_item(c, key, 0, &s);
    default: return FR_INTERNAL;
    }
}

static void type_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        char type;
        const char *says;
    } bad[] = {
        {"\n\n  a:    many", 'i',
         "run.yaml:3:9: a: expected an integer from 1 to 1048576, found \"many\""},
        {"a: 0", 'i', "run.yaml:1:4: a: expected an integer from 1 to 1048576, found \"0\""},
        {"a: 1048577", 'i', "found \"1048577\""},
        {"a: 1.0", 'i', "found \"1.0\""},
        {"a: 0x10", 'i', "found \"0x10\""},
        {"a: '5'", 'i', "found the text \"5\""},
        {"a:", 'i', "run.yaml:1:1: a: expected an integer from 1 to 1048576, found nothing"},
        {"a: ~", 'i', "found nothing"},
        {"a: [1]", 'i', "run.yaml:1:1: a: expected an integer from 1 to 1048576, found a list"},
        {"a: {b: 1}", 'i', "found a mapping"},
        {"a: 99999999999999999999", 'j', "expected an integer, found \"9999"},
        {"a: 1", 'k', "expected an integer of at least 2, found \"1\""},
        {"a: 0.6", 'r', "run.yaml:1:4: a: expected a number from 0 to 0.5, found \"0.6\""},
        {"a: -0.1", 'r', "found \"-0.1\""},
        {"a: .nan", 's', "expected a number of at least 0, found \".nan\""},
        {"a: nan", 's', "found \"nan\""},
        {"a: 1e999", 's', "found \"1e999\""},
        {"a: -.inf", 's', "found \"-.inf\""},
        {"a: yes", 'b', "expected true or false, found \"yes\""},
        {"a: 1", 'b', "expected true or false, found \"1\""},
        {"a: 'true'", 'b', "found the text \"true\""},
        {"a: [x]", 't', "expected a text, found a list"},
        {"a:", 't', "expected a text (\"\" for an empty one), found nothing"},
        {"b: 1", 't', "run.yaml: a is missing; expected a text"},
        {"a: [1, x]", 'I', "run.yaml:1:8: a[1]: expected an integer, found \"x\""},
        {"a: [1, [2]]", 'I', "a[1]: expected an integer, found a list"},
        {"a: {b: 1}", 'I', "expected a list of integers, found a mapping"},
        {"a: x", 'I', "a: expected an integer, found \"x\""},
        {"a:", 'I', "expected a list of integers, found nothing"},
        {"a: [1, 2, 3]", 'I', "a: expected at most 2 items, found 3"},
        {"a: [x, {}]", 'T', "a[1]: expected a text, found a mapping"},
        {"a: [x, ]\n", 'T', NULL},
        {"a: 1", 'S', "run.yaml:1:4: a: expected a mapping (key: value), found \"1\""},
        {"a: [1]", 'S', "found a list"},
        {"a: {x: 1}", 'L', "expected a list of mappings, found a mapping"},
        {"b: 1", 'L', "a: item 0 requested, but the list has 0"},
        {"a: .inf", 's', NULL},
        {"a: True", 'b', NULL},
        {"a: ''", 't', NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_conf *c = parse(bad[i].text);
        if (bad[i].says)
            assert_fails(ctx, ask(c, bad[i].type, "a"), FR_INVALID, bad[i].says);
        else
            assert_ok(ctx, ask(c, bad[i].type, "a"));
        fr_conf_free(c);
    }
}

static void broken_documents(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"a: 1\na: 2", "run.yaml:2:1: key \"a\" is given twice, first at line 1"},
        {"t: {b: 1, b: 2}", "run.yaml:1:11: key \"b\" is given twice"},
        {"- 1", "run.yaml: a config must be a mapping of keys to values, but this is a list"},
        {"just text", "this is a single value"},
        {"a: [1, 2", "run.yaml:"},
        {"a: 1\n b: 2", "run.yaml:1:4: "},
        {"a:\n\t- b", "run.yaml:2:1: "},
        {"a: 1\n---\nb: 2", "more than one document"},
        {"a: *none", "run.yaml:1:5: alias *none has no anchor before it"},
        {"a: &x [1, *x]", "alias *x is inside its own anchor"},
        {"a: &x\n  b: *x", "alias *x is inside its own anchor"},
        {"a: !int 3", "run.yaml:1:4: tags"},
        {"? [a, b]\n: 1", "a key must be a text"},
        {"? {a: b}\n: 1", "a key must be a text"},
        {"x: &k a\n*k : 1", "an alias cannot be a key"},
        {"a:\n  : 1", "run.yaml:2:3: a key must have 1 to 128 bytes"},
        {"a: \"x\\0y\"", "run.yaml:1:5: a zero byte inside a text"},
        {"a: b\xFF", "run.yaml:1:5: not UTF-8 text"},
        {"ok: 1\na: \x01", "run.yaml:2:4: character 1 is not allowed"},
        {"%YAML 3.0\n---\na: 1", "run.yaml:1:1: directives"},
        {"a: 1\n%x", "run.yaml:2:1: directives"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_conf *c;
        assert_fails(ctx, fr_conf_parse(ctx, bad[i].text, strlen(bad[i].text), "run.yaml", &c),
                     FR_INVALID, bad[i].says);
        assert_null(c);
    }
    fr_conf *c;
    assert_fails(ctx, fr_conf_parse(ctx, "a: 1\0b: 2", 10, "run.yaml", &c), FR_INVALID,
                 "run.yaml:1:5: character 0");
}

static void empty_documents(void **state)
{
    (void)state;
    static const char *const texts[] = {"",   "\n",   "# nothing\n", "---\n",
                                        "{}", "null", "\xEF\xBB\xBF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fr_conf *c = parse(texts[i]);
        int64_t v;
        assert_ok(ctx, fr_conf_int(c, "a", 3, 0, 9, &v));
        assert_int_equal(v, 3);
        assert_ok(ctx, fr_conf_finish(c));
        fr_conf_free(c);
    }
}

static void unknown_keys(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"train:\n  bacth: 3\n", "run.yaml:2:3: unknown key train.bacth; did you mean \"batch\"?"},
        {"train: {batch: 1, micros: 3}", "1:19: unknown key train.micros; did you mean \"micro\"?"},
        {"trian: {batch: 1}", "run.yaml:1:1: unknown key trian; did you mean \"train\"?"},
        {"train: {xyzzy: 1}", "unknown key train.xyzzy; known here: batch, micro"},
        {"model: {x: 1}", "unknown key model; known here: train, none"},
        {"none: {x: 1}", "unknown key none.x; no keys are known here"},
        {"train: {x: [{y: 1}]}", "unknown key train.x"},
        {"train: {b: 1}", "unknown key train.b; known here"},
        {"train: {rl: 1}", "unknown key train.rl; did you mean \"lr\"?"}, /* swapped: one step */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_conf *c = parse(bad[i].text);
        int64_t v;
        assert_ok(ctx, fr_conf_int(section(c, "train"), "batch", 1, 1, 99, &v));
        assert_ok(ctx, fr_conf_int(section(c, "train"), "micro", 1, 1, 99, &v));
        assert_ok(ctx, fr_conf_int(section(c, "train"), "lr", 1, 1, 99, &v));
        section(c, "none");
        assert_fails(ctx, fr_conf_finish(c), FR_INVALID, bad[i].says);
        fr_conf_free(c);
    }
}

static void places(void **state)
{
    (void)state;
    fr_conf *c = parse("a: 1\ntrain:\n  batch: 8\n  list:\n    - x: 1\n");
    fr_conf *train = section(c, "train"), *item;
    assert_string_equal(fr_conf_where(train, "batch"), "run.yaml:3:10");
    assert_string_equal(fr_conf_where(train, NULL), "run.yaml:2:1");
    assert_string_equal(fr_conf_where(train, "absent"), "run.yaml:2:1");
    assert_string_equal(fr_conf_where(c, NULL), "run.yaml");
    assert_string_equal(fr_conf_where(section(c, "made"), "absent"), "run.yaml");
    assert_ok(ctx, fr_conf_list_item(train, "list", 0, &item));
    assert_string_equal(fr_conf_where(item, NULL), "run.yaml:5:7");
    assert_fails(ctx, fr_conf_fail(train, "batch", "must divide %d", 9), FR_INVALID,
                 "run.yaml:3:10: must divide 9");
    fr_conf_free(c);
}

/* --- overrides ---------------------------------------------------------------------------- */

static fr_status load(void **state, const char *text, int n, const char *const *sets, fr_conf **out)
{
    const char *path = support_path(state, "c.yaml");
    support_write(path, text, strlen(text));
    return fr_conf_load(ctx, path, n, sets, out);
}

static void sets_override(void **state)
{
    static const char *const sets[] = {
        "train.batch=64", "run.out=/tmp/x=y", "model.sizes=[1, 2]", "data={name: toy, n: 3}",
        "train.micro=2",  "train.micro=4",    "empty.k=5",          "quoted='7'"};
    fr_conf *c;
    assert_ok(ctx, load(state, "train: {batch: 8, lr: 3}\nempty:\n", 8, sets, &c));
    int64_t v[2];
    int n;
    const char *t;
    assert_ok(ctx, fr_conf_int(section(c, "train"), "batch", 1, 1, 99, v));
    assert_int_equal(v[0], 64);
    assert_ok(ctx, fr_conf_int(section(c, "train"), "lr", 1, 1, 99, v));
    assert_int_equal(v[0], 3);
    assert_ok(ctx, fr_conf_int(section(c, "train"), "micro", 1, 1, 99, v));
    assert_int_equal(v[0], 4); /* the later one wins */
    assert_ok(ctx, fr_conf_text(section(c, "run"), "out", NULL, &t));
    assert_string_equal(t, "/tmp/x=y");
    assert_ok(ctx, fr_conf_ints(section(c, "model"), "sizes", 2, v, &n));
    assert_true(n == 2 && v[1] == 2);
    assert_ok(ctx, fr_conf_text(section(c, "data"), "name", NULL, &t));
    assert_string_equal(t, "toy");
    assert_ok(ctx, fr_conf_int(section(c, "empty"), "k", 1, 1, 99, v));
    assert_int_equal(v[0], 5);
    assert_ok(ctx, fr_conf_text(c, "quoted", NULL, &t));
    assert_fails(ctx, fr_conf_int(c, "quoted", 1, 1, 9, v), FR_INVALID,
                 "--set quoted='7': quoted: expected");
    assert_string_equal(fr_conf_where(section(c, "data"), "n"), "--set data={name: toy, n: 3}");
    assert_true(fr_conf_has(c, "run"));
    assert_fails(ctx, fr_conf_finish(c), FR_INVALID,
                 "--set data={name: toy, n: 3}: unknown key "
                 "data.n");
    fr_conf_free(c);
}

static void wrong_sets(void **state)
{
    static const struct {
        const char *set, *says;
    } bad[] = {
        {"train.batch", "--set train.batch: expected key=value"},
        {"=3", "--set =3: expected key=value"},
        {"", "expected key=value"},
        {"a..b=1", "--set a..b=1: \"\" is not a key"},
        {".a=1", "is not a key"},
        {"a.=1", "is not a key"},
        {"train.batch.x=1", "--set train.batch.x=1: train.batch is not a mapping ("},
        {"list.x=1", "list is not a mapping ("},
        {"a=[1", "--set a=[1: "},
        {"a={b: 1, b: 2}", "--set a={b: 1, b: 2}: key \"b\" is given twice"},
        {"a=*x", "--set a=*x: alias *x has no anchor"},
        {"a=\xFF", "not UTF-8"},
        {"a\xFF=1", "not UTF-8"},
        {"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=1", "is not a key"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fr_conf *c;
        assert_fails(ctx, load(state, "train: {batch: 8}\nlist: [1]\n", 1, &bad[i].set, &c),
                     FR_INVALID, bad[i].says);
        assert_null(c);
    }
    const char *set = "train.bacth=3";
    fr_conf *c;
    int64_t v;
    assert_ok(ctx, load(state, "train: {batch: 8}\n", 1, &set, &c));
    assert_ok(ctx, fr_conf_int(section(c, "train"), "batch", 1, 1, 99, &v));
    assert_fails(ctx, fr_conf_finish(c), FR_INVALID,
                 "--set train.bacth=3: unknown key train.bacth; did you mean \"batch\"?");
    fr_conf_free(c);
}

static void missing_file(void **state)
{
    (void)state;
    fr_conf *c;
    assert_fails(ctx, fr_conf_load(ctx, "none.yaml", 0, NULL, &c), FR_INVALID,
                 "cannot open none.yaml: No such file or directory");
    assert_null(c);
}

/* --- bounds ------------------------------------------------------------------------------- */

static fr_status parse_only(const char *text, size_t bytes)
{
    fr_conf *c;
    fr_status status = fr_conf_parse(ctx, text, bytes, "h.yaml", &c);
    fr_conf_free(c);
    return status;
}

static void hostile_sizes(void **state)
{
    (void)state;
    char laughs[2000];
    size_t n = (size_t)sprintf(laughs, "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 12; i++)
        n += (size_t)sprintf(laughs + n, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i,
                             i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    assert_fails(ctx, parse_only(laughs, n), FR_INVALID,
                 "this alias expands to more than 8192 values");
    size_t size = 3 << 20;
    char *big = malloc(size + 1);
    memset(big, '[', size);
    big[size] = '\0';
    assert_fails(ctx, parse_only(big, 1 << 18), FR_INVALID, "deeper than 32 levels");
    assert_fails(ctx, parse_only(big, size), FR_INVALID, "more than 262144 bytes");
    memcpy(big, "a: [", 4);
    for (size_t i = 4; i + 1 < 100000; i += 2) big[i] = '1', big[i + 1] = ',';
    assert_fails(ctx, parse_only(big, 100000), FR_INVALID, "more than 8192 values");
    n = 0;
    for (int i = 0; i < 33; i++) n += (size_t)sprintf(big + n, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    memcpy(big, "a0: &a0 [1   ]", 14);
    assert_fails(ctx, parse_only(big, n), FR_INVALID, "levels");
    /* half of the levels behind the alias, half around it */
    assert_fails(ctx,
                 parse_only("a: &a [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]\n"
                            "b: [[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]\n",
                            93),
                 FR_INVALID, "this alias expands to more than 32 levels");
    memset(big, 'k', 200);
    memcpy(big + 200, ": 1", 4);
    assert_fails(ctx, parse_only(big, 203), FR_INVALID, "a key must have 1 to 128 bytes");
    free(big);
}

/* --- memory ------------------------------------------------------------------------------- */

static fr_status load_and_ask(fr_ctx *c, void *path)
{
    static const char *const sets[] = {"train.micro=[1, 2]", "new.key=text"};
    fr_conf *top, *train, *item;
    FR_TRY(fr_conf_load(c, path, 2, sets, &top));
    fr_status status;
    int64_t v[2];
    double r;
    const char *t;
    int n;
    FR_TRY_GOTO(status, fr_conf_section(top, "train", &train), done);
    FR_TRY_GOTO(status, fr_conf_int(train, "batch", 1, 1, 99, v), done);
    FR_TRY_GOTO(status, fr_conf_ints(train, "micro", 2, v, &n), done);
    FR_TRY_GOTO(status, fr_conf_real(train, "lr", 1, 0, 9, &r), done);
    FR_TRY_GOTO(status, fr_conf_text(train, "name", "sgd", &t), done);
    FR_TRY_GOTO(status, fr_conf_list_item(top, "l", 1, &item), done);
    FR_TRY_GOTO(status, fr_conf_record(train, "steps", "{a: [1, 2]}"), done);
done:
    fr_conf_free(top);
    return status;
}

static void memory_runs_out(void **state)
{
    char path[300], text[9000] = "train: {batch: 8}\nl: &l\n  - x: 1\n  - y: 2\nm: *l\nlong: ";
    size_t n = strlen(text);
    memset(text + n, 'x', sizeof text - n);
    snprintf(path, sizeof path, "%s", support_path(state, "walk.yaml"));
    support_write(path, text, sizeof text);
    assert_int_in_range(support_walk_memory(load_and_ask, path), 5, 1000);
}

int main(void)
{
    ctx = fr_ctx_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_defaults),
        cmocka_unit_test(only_given_keys_are_had),
        cmocka_unit_test(sections),
        cmocka_unit_test(lists),
        cmocka_unit_test(aliases),
        cmocka_unit_test(type_errors),
        cmocka_unit_test(broken_documents),
        cmocka_unit_test(empty_documents),
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(places),
        cmocka_unit_test(sets_override),
        cmocka_unit_test(wrong_sets),
        cmocka_unit_test(missing_file),
        cmocka_unit_test(hostile_sizes),
        cmocka_unit_test(memory_runs_out),
    };
    int code = cmocka_run_group_tests_name("conf", tests, support_dir_make, support_dir_remove);
    fr_ctx_free(ctx);
    return code;
}
