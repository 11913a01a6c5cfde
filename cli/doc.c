/* doc.c -- the two ways to write a document.
 *
 * A table becomes a table in Markdown, and a list in a man page, because terminals are narrow.
 * The first cell is the term, the column "meaning" comes first below it, and the others follow with
 * their heads. */
#include "doc.h"

#include <ctype.h>
#include <forerun/base.h>
#include <stdio.h>
#include <string.h>

/* --- Markdown --------------------------------------------------------------------------------- */

static void md_begin(void)
{
    printf("# Reference\n\nEvery command, key, name, file and exit code. This page is made from "
           "the code by\n`scripts/make-reference.sh`, and a test fails when it is old: do not edit "
           "it.\n");
}

static void md_heading(int level, const char *text)
{
    printf("\n%.*s %s\n", level + 1, "####", text);
}

static void md_text(const char *text) { printf("\n%s\n", text); }

static void md_code(const char *text)
{
    printf("\n```text\n%s%s```\n", text, text[strlen(text) - 1] == '\n' ? "" : "\n");
}

/* A bar would end the cell, and text in angle brackets would be taken for a tag. */
static void md_cell(const char *text, bool is_code)
{
    if (is_code) putchar('`');
    for (; *text; text++) {
        if (*text == '|' || (!is_code && strchr("<*", *text))) putchar('\\');
        putchar(*text);
    }
    if (is_code) putchar('`');
}

static void md_table(const char *const *heads)
{
    putchar('\n');
    for (int i = 0; heads[i]; i++) printf("| %s ", heads[i]);
    printf("|\n");
    for (int i = 0; heads[i]; i++) printf("|---");
    printf("|\n");
}

static void md_row(const char *const *heads, const char *const *cells)
{
    for (int i = 0; heads[i]; i++) {
        printf("| ");
        md_cell(cells[i], i == 0);
        putchar(' ');
    }
    printf("|\n");
}

const doc doc_markdown = {md_begin, md_heading, md_text, md_code, md_table, md_row};

/* --- man page --------------------------------------------------------------------------------- */

/* Dashes are escaped, because readers type them and typographic ones would fail. A point or quote
 * at the start of a line would be a request. */
static void man_put(const char *text)
{
    bool is_start = true;
    for (; *text; text++) {
        if (is_start && (*text == '.' || *text == '\'')) printf("\\&");
        is_start = *text == '\n';
        if (*text == '-')
            printf("\\-");
        else if (*text == '\\')
            printf("\\e");
        else
            putchar(*text);
    }
}

static void man_begin(void)
{
    printf(".\\\" Made from the code by scripts/make-reference.sh: do not edit.\n"
           ".TH FORERUN 1 \"\" \"Forerun %s\" \"User Commands\"\n"
           ".SH NAME\nforerun \\- train neural networks by pipelined model parallelism\n"
           ".SH SYNOPSIS\n.B forerun\n.I verb\n[argument ...]\n.br\n.B forerun help\n.RI [ verb ]\n"
           ".SH DESCRIPTION\n"
           "Forerun trains deep neural networks across many devices by pipelined model\n"
           "parallelism, keeps the pipeline full by predicting weights, combines pipelines with\n"
           "data parallelism, and forecasts which combination is fastest.\n",
           fr_version());
}

static bool is_below_heading; /* no paragraph here in man pages */

static void man_paragraph(void)
{
    if (!is_below_heading) printf(".PP\n");
    is_below_heading = false;
}

static void man_heading(int level, const char *text)
{
    printf(level == 1 ? ".SH " : ".SS ");
    for (; *text; text++) putchar(level == 1 ? toupper((unsigned char)*text) : *text);
    putchar('\n');
    is_below_heading = true;
}

static void man_text(const char *text)
{
    man_paragraph();
    man_put(text);
    putchar('\n');
}

static void man_code(const char *text)
{
    man_paragraph();
    printf(".nf\n");
    man_put(text);
    if (text[strlen(text) - 1] != '\n') putchar('\n');
    printf(".fi\n");
}

static void man_table(const char *const *heads) { (void)heads; }

static void man_row(const char *const *heads, const char *const *cells)
{
    printf(".TP\n.B \"");
    for (const char *c = cells[0]; *c; c++)
        printf(*c == '"' ? "\\(dq" : *c == '-' ? "\\-" : "%c", *c);
    printf("\"\n");
    for (int i = 1; heads[i]; i++)
        if (strcmp(heads[i], "meaning") == 0) man_put(cells[i]);
    for (int i = 1; heads[i]; i++) {
        if (strcmp(heads[i], "meaning") == 0 || !cells[i][0]) continue;
        printf("\n.br\n");
        man_put(heads[i]);
        printf(": ");
        man_put(cells[i]);
    }
    putchar('\n');
}

const doc doc_man = {man_begin, man_heading, man_text, man_code, man_table, man_row};
