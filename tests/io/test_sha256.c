/* test_sha256.c -- the examples of FIPS 180-4 and NIST's CAVP, with the input in all possible
 * pieces. */
#include "io/sha256.h"
#include "support/check.h"

static void digest(const void *data, size_t bytes, size_t piece, char hex[65])
{
    fr__sha256 s;
    fr__sha256_init(&s);
    for (size_t at = 0; at < bytes; at += piece)
        fr__sha256_update(&s, (const char *)data + at, bytes - at < piece ? bytes - at : piece);
    fr__sha256_final(&s, hex);
}

static void known_answers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "mnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hex[65];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        digest(known[i].text, strlen(known[i].text), 64, hex);
        assert_string_equal(hex, known[i].hex);
    }
}

static void a_million(void **state)
{
    (void)state;
    char *text = malloc(1000000), hex[65];
    memset(text, 'a', 1000000);
    digest(text, 1000000, 1000000, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    digest(text, 1000000, 997, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(text);
}

/* Around the padding's block border, in pieces of every size. */
static void pieces_do_not_matter(void **state)
{
    (void)state;
    unsigned char data[200];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + 1);
    for (size_t n = 1; n <= sizeof data; n++) {
        char whole[65], parts[65];
        digest(data, n, n, whole);
        for (size_t piece = 1; piece < n; piece += 1 + n / 9) {
            digest(data, n, piece, parts);
            assert_string_equal(parts, whole);
        }
    }
}

static void empty_updates_change_nothing(void **state)
{
    (void)state;
    fr__sha256 s;
    char hex[65];
    fr__sha256_init(&s);
    fr__sha256_update(&s, NULL, 0);
    fr__sha256_update(&s, "ab", 2);
    fr__sha256_update(&s, NULL, 0);
    fr__sha256_update(&s, "c", 1);
    fr__sha256_final(&s, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(a_million),
        cmocka_unit_test(pieces_do_not_matter),
        cmocka_unit_test(empty_updates_change_nothing),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
