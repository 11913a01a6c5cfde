/* cbc.c -- finds the shared library of CBC and the calls that are made of it. */
#include "plan/cbc.h"

#ifdef FR_HAVE_CBC

#include <dlfcn.h>
#include <string.h>

/* Where the system keeps it, then where the build found it. */
static const char *const found[] = {FR_CBC_NAME, FR_CBC_PATH, NULL};

/* A name and the place in the table for its address. */
typedef struct entry {
    const char *name;
    void *place;
} entry;

static fr_status find_calls(fr_ctx *ctx, const char *file, fr__cbc *c)
{
#define FR_CBC_ENTRY(call) {"Cbc_" #call, &c->call},
    const entry entries[] = {FR_CBC_CALLS(FR_CBC_ENTRY)};
#undef FR_CBC_ENTRY
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *address = dlsym(c->library, entries[i].name);
        if (!address)
            return fr_fail(ctx, FR_UNSUPPORTED,
                           "dlplacer: %s is no CBC that this build can use: it has no %s", file,
                           entries[i].name);
        memcpy(entries[i].place, &address, sizeof address); /* ISO C has no cast for it */
    }
    return FR_OK;
}

fr_status fr__cbc_open(fr_ctx *ctx, const char *const *files, fr__cbc *out)
{
    *out = (fr__cbc){0};
    if (!files) files = found;
    char why[256] = "";
    const char *const *file = files;
    for (; *file && !out->library; file += !out->library) {
        /* Its runtime libraries have threads of their own: they stay once they are there. */
        out->library = dlopen(*file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *text = out->library ? NULL : dlerror();
        if (text && !why[0]) strncat(why, text, sizeof why - 1);
    }
    if (!out->library)
        return fr_fail(ctx, FR_UNSUPPORTED,
                       "dlplacer: the solver cannot be loaded (%s); install CBC (Debian: "
                       "coinor-libcbc-dev) or choose another planner",
                       why);
    fr_status status = find_calls(ctx, *file, out);
    if (status != FR_OK) fr__cbc_close(out);
    return status;
}

void fr__cbc_close(fr__cbc *c)
{
    if (c->library) dlclose(c->library);
    *c = (fr__cbc){0};
}

#endif
