/* Here-documents: which ones an instruction announces. */
#pragma once
#include "base/err.h"
#include "dockerfile/parse.h"

/* Fills in->heredoc with what @line announces, without the content. */
int heredoc_find(struct instruction *in, const char *line, struct err *e);
/* Is @word "<<NAME"? Then *ret_name is the name, to be freed; else NULL. */
int heredoc_word(const char *word, struct heredoc *ret, struct err *e);
/* Removes the tabs in front of every line. */
void heredoc_chomp(char *content);
