/* update_rule.c -- the keys that decide how weights are updated, read without model and data. */
#include "config/setup.h"
#include "io/conf.h"

#include <string.h>

static fr_status read(fr_conf *conf, const char *name, fr_update_rule *out)
{
    fr__settings s;
    fr__conf_drop(conf, "model");
    fr__conf_drop(conf, "data");
    FR_TRY(fr__settings_read(conf, name, NULL, &s));
    FR_TRY(fr_conf_finish(conf));
    *out = (fr_update_rule){.optimizer = s.optimizer,
                            .options = s.optim,
                            .policy_options = fr__settings_policy_options(&s),
                            .stages = s.stages,
                            .micro = (int)s.micro / fr__settings_replicas(&s, 0)};
    return FR_OK;
}

fr_status fr_run_update_rule(fr_ctx *ctx, const fr_run_options *o, fr_update_rule *out)
{
    static const char nothing[] = "{}";
    fr_run_options own;
    fr_conf *conf;
    FR_TRY(fr__run_options_take(ctx, o, &own));
    const char *name = own.config ? own.config : "config";
    const char *text = own.config || own.config_text ? own.config_text : nothing;
    FR_TRY(text ? fr__conf_from_text(ctx, text, strlen(text), name, own.n_sets, own.sets, &conf)
                : fr_conf_load(ctx, name, own.n_sets, own.sets, &conf));
    fr_status status = read(conf, name, out);
    fr_conf_free(conf);
    return status;
}
