/* read_entry.c -- lines, numbers and instructions of a schedule file. */
#include "sched/read.h"

#include <stdio.h>
#include <string.h>

fr_status fr__read_fail(const fr__sched_reader *r, int line, int number, const char *format, ...)
{
    char text[512], where[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (number > 0) snprintf(where, sizeof where, "entry %d: ", number);
    return fr_fail(r->ctx, FR_INVALID, "%s:%d: %s%s", r->path, line, where, text);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static fr__text_span trim(fr__text_span s)
{
    while (s.n > 0 && is_blank(s.at[0])) s.at++, s.n--;
    while (s.n > 0 && is_blank(s.at[s.n - 1])) s.n--;
    return s;
}

bool fr__read_line(fr__sched_reader *r, fr__text_span *line)
{
    while (r->at < r->end) {
        size_t left = (size_t)(r->end - r->at);
        const char *stop = memchr(r->at, '\n', left);
        *line = (fr__text_span){r->at, stop ? (size_t)(stop - r->at) : left};
        r->at = stop ? stop + 1 : r->end;
        r->line++;
        const char *comment = line->n ? memchr(line->at, '#', line->n) : NULL;
        if (comment) line->n = (size_t)(comment - line->at);
        *line = trim(*line);
        if (line->n > 0) return true;
    }
    return false;
}

fr__text_span fr__read_part(fr__text_span *line, char separator)
{
    size_t n = 0;
    while (n < line->n && line->at[n] != separator && !(separator == ' ' && is_blank(line->at[n])))
        n++;
    fr__text_span part = {line->at, n};
    size_t cut = n < line->n ? n + 1 : n;
    line->at += cut, line->n -= cut;
    if (separator == ' ') *line = trim(*line);
    return trim(part);
}

bool fr__read_number(fr__text_span *text, int *value)
{
    size_t n = 0;
    int64_t v = 0;
    for (; n < text->n && text->at[n] >= '0' && text->at[n] <= '9'; n++)
        if (v <= FR_SCHED_MAX_NUMBER) v = 10 * v + (text->at[n] - '0');
    *value = v <= FR_SCHED_MAX_NUMBER ? (int)v : -1;
    if (n == 0 || *value < 0) return false;
    text->at += n, text->n -= n;
    return true;
}

/* --- instructions ------------------------------------------------------------------------- */

/* Cut the action off the front of the text: letters and '_', as fr_instr_text writes it. */
static int read_action(fr__text_span *text, fr__text_span *word)
{
    size_t n = 0;
    while (n < text->n && ((text->at[n] >= 'A' && text->at[n] <= 'Z') || text->at[n] == '_')) n++;
    *word = (fr__text_span){text->at, n};
    text->at += n, text->n -= n;
    for (int a = 0; a < FR_DO_R; a++) {
        const char *name = fr__action_name(a);
        if (strlen(name) == n && memcmp(name, word->at, n) == 0) return a;
    }
    return -1;
}

bool fr__span_is(fr__text_span s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.at, word, s.n) == 0;
}

/* PyTorch's entries for sharded weights. Weights are not sharded here, and lowering places
 * reductions. */
static bool is_sharding(fr__text_span word)
{
    return fr__span_is(word, "UNSHARD") || fr__span_is(word, "RESHARD") ||
           fr__span_is(word, "REDUCE_GRAD") || fr__span_is(word, "WAIT_REDUCE_GRAD");
}

/* PyTorch keeps the tensor of a send until its wait entry; here slots and buffers keep it. */
static bool is_wait(fr__text_span word)
{
    return fr__span_is(word, "WAIT_SEND_F") || fr__span_is(word, "WAIT_SEND_B");
}

static fr_status not_an_instruction(const fr__sched_reader *r, fr__text_span text, int number)
{
    int n = text.n < 40 ? (int)text.n : 40;
    if (text.n > 0 && text.at[0] == '(')
        return fr__read_fail(r, r->line, number,
                             "%.*s: expected two instructions, as in (0F1;1B0)OVERLAP_F_B", n,
                             text.at);
    return fr__read_fail(
        r, r->line, number,
        "%.*s: expected an instruction: stage, action (F B I W SEND_F RECV_F SEND_B RECV_B REDUCE "
        "STEP) and micro-batch, such as 0F0 or 2SEND_F5; numbers up to %d",
        n, text.at, FR_SCHED_MAX_NUMBER);
}

/* The parts of "(0F1;1B0)OVERLAP_F_B", one after the other. */
static fr_status read_overlap(fr__sched_reader *r, fr__text_span text, int number)
{
    fr__text_span rest = {text.at + 1, text.n - 1}, parts = fr__read_part(&rest, ')');
    if (parts.n == 0 || !fr__span_is(trim(rest), "OVERLAP_F_B"))
        return not_an_instruction(r, text, number);
    while (parts.n > 0) {
        fr__text_span part = fr__read_part(&parts, ';');
        if (part.n == 0 || part.at[0] == '(') return not_an_instruction(r, text, number);
        FR_TRY(fr__read_entry(r, part, number));
    }
    r->n_overlaps++;
    return FR_OK;
}

fr_status fr__read_entry(fr__sched_reader *r, fr__text_span text, int number)
{
    fr__text_span rest = text, word;
    if (rest.n >= 2 && rest.at[0] == '"' && rest.at[rest.n - 1] == '"')
        rest = trim((fr__text_span){rest.at + 1, rest.n - 2});
    if (rest.n > 0 && rest.at[0] == '(') return read_overlap(r, rest, number);
    fr__sched_entry e = {.worker = r->n_rows, .line = r->line, .number = number};
    if (!fr__read_number(&rest, &e.x.stage)) return not_an_instruction(r, text, number);
    int action = read_action(&rest, &word);
    if (action < 0 && (is_sharding(word) || is_wait(word))) {
        bool has_number = fr__read_number(&rest, &e.x.micro);
        if (rest.n > 0 || (is_wait(word) && !has_number))
            return not_an_instruction(r, text, number);
        r->n_skipped += is_sharding(word);
        return FR_OK;
    }
    if (action < 0 || !fr__read_number(&rest, &e.x.micro))
        return not_an_instruction(r, text, number);
    e.x.action = (uint8_t)action;
    e.x.peer = fr__is_transfer(action) ? fr__neighbour(&e.x) : -1;
    if (fr__is_transfer(action) && rest.n > 0 && rest.at[0] == '>') {
        rest.at++, rest.n--;
        if (!fr__read_number(&rest, &e.x.peer)) return not_an_instruction(r, text, number);
    }
    if (rest.n > 0) return not_an_instruction(r, text, number);
    if (!fr__vec_push(&r->entries, e))
        return fr__no_memory(r->ctx, r->entries.n * sizeof e, r->path);
    return FR_OK;
}
