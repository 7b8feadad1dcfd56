#include "client/client.h"
#include "base/base.h"
#include "client/list.h"
#include "client/show.h"

#define NAMES_MS 1000 /* nobody waits longer for a tab */

static const char help[] = "usage: cloche completion bash|zsh|fish\n"
			   "\n"
			   "Prints a script that completes commands, options and the names of sandboxes:\n"
			   "\n"
			   "  bash   source <(cloche completion bash)       in ~/.bashrc\n"
			   "  zsh    source <(cloche completion zsh)        in ~/.zshrc, behind compinit\n"
			   "  fish   cloche completion fish > ~/.config/fish/completions/cloche.fish\n"
			   "\n";

/* The commands of the other programs; a test compares them with what those say themselves. */
static const struct elsewhere {
	const char *name, *text, *options;
} elsewhere[] = {
	{ "run", "run a command in a sandbox of its own",
	  "--isolation --image --cpus --memory --disk --inodes --storage --pids --nofile --timeout --cpu-time "
	  "--output-limit "
	  "--io-bps --read-only --tmpfs --network --env --mount --workdir --user --hostname --seccomp --json --tty "
	  "--no-tty "
	  "--help" },
	{ "doctor", "check what this host can enforce", "--attack --json --help" },
	{ "serve", "the daemon",
	  "--data --listen --token-file --config --user --images --allow-mount --pool --tls-cert --tls-key "
	  "--stop-sandboxes "
	  "--check --debug --version --help" },
};

static void put_options(const struct command *c)
{
	for (const struct option *o = c->options; o && o->name; o++)
		printf("--%s ", o->name);
	for (const struct option *o = args_common(); o->name; o++)
		printf("--%s ", o->name);
}

static void put_names(void)
{
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		printf("%s ", elsewhere[i].name);
	for (size_t i = 0; commands[i]; i++)
		printf("%s ", commands[i]->name);
}

static const char *what(const struct command *c)
{
	switch (c->complete) {
	case COMPLETE_SANDBOX:
		return "sandbox";
	case COMPLETE_COPY:
		return "copy";
	case COMPLETE_WORDS:
		return "words";
	case COMPLETE_NOTHING:
		break;
	}
	return "nothing";
}

/* case branches that set the variables "options", "what" and "given": bash and zsh read them alike. */
static void put_cases(void)
{
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		printf("\t%s) options='%s' what=files ;;\n", elsewhere[i].name, elsewhere[i].options);
	for (size_t i = 0; commands[i]; i++) {
		printf("\t%s) options='", commands[i]->name);
		put_options(commands[i]);
		printf("' what=%s given='%s' ;;\n", what(commands[i]), commands[i]->words ? commands[i]->words : "");
	}
}

static void bash(void)
{
	puts("# bash completion for cloche: source <(cloche completion bash)\n"
	     "_cloche_names() { cloche completion names 2>/dev/null </dev/null; }\n"
	     "_cloche() {\n"
	     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} options= what= given= i\n"
	     "\tCOMPREPLY=()\n"
	     "\tif ((COMP_CWORD == 1)); then");
	fputs("\t\tmapfile -t COMPREPLY < <(compgen -W '", stdout);
	put_names();
	puts("--help --version' -- \"$cur\")\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tfor ((i = 2; i < COMP_CWORD; i++)); do\n"
	     "\t\t[[ ${COMP_WORDS[i]} == -- ]] && return 0\n"
	     "\tdone\n"
	     "\tcase ${COMP_WORDS[1]} in");
	put_cases();
	puts("\t*) return ;;\n"
	     "\tesac\n"
	     "\tif [[ $cur == -* ]]; then\n"
	     "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tcase $what in\n"
	     "\tsandbox) mapfile -t COMPREPLY < <(compgen -W \"$(_cloche_names)\" -- \"$cur\") ;;\n"
	     "\twords) mapfile -t COMPREPLY < <(compgen -W \"$given\" -- \"$cur\") ;;\n"
	     "\tfiles) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
	     "\tcopy)\n"
	     "\t\tmapfile -t COMPREPLY < <(compgen -S : -W \"$(_cloche_names)\" -- \"$cur\"; compgen -f -- \"$cur\")\n"
	     "\t\tcompopt -o nospace 2>/dev/null\n"
	     "\t\t;;\n"
	     "\tesac\n"
	     "}\n"
	     "complete -F _cloche cloche");
}

static void zsh(void)
{
	puts("#compdef cloche\n"
	     "# zsh completion for cloche: source <(cloche completion zsh)\n"
	     "_cloche() {\n"
	     "\tlocal options= what= given=\n"
	     "\tlocal -a names\n"
	     "\tif ((CURRENT == 2)); then\n"
	     "\t\tnames=(");
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++)
		printf("\t\t\t'%s:%s'\n", elsewhere[i].name, elsewhere[i].text);
	for (size_t i = 0; commands[i]; i++)
		printf("\t\t\t'%s:%s'\n", commands[i]->name, commands[i]->text);
	puts("\t\t)\n"
	     "\t\t_describe command names\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\t((${words[(I)--]} && ${words[(I)--]} < CURRENT)) && { _normal; return }\n"
	     "\tcase $words[2] in");
	put_cases();
	puts("\tesac\n"
	     "\tif [[ $PREFIX == -* ]]; then\n"
	     "\t\tcompadd -- ${=options}\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tcase $what in\n"
	     "\tsandbox) compadd -- ${(f)\"$(cloche completion names 2>/dev/null </dev/null)\"} ;;\n"
	     "\twords) compadd -- ${=given} ;;\n"
	     "\tfiles) _files ;;\n"
	     "\tcopy) compadd -S : -- ${(f)\"$(cloche completion names 2>/dev/null </dev/null)\"}; _files ;;\n"
	     "\tesac\n"
	     "}\n"
	     "compdef _cloche cloche");
}

static void fish_option(const char *command, const char *name)
{
	printf("complete -c cloche -n '__fish_seen_subcommand_from %s' -l %s\n", command, name);
}

static void fish(void)
{
	puts("# fish completion for cloche\n"
	     "function __cloche_names; cloche completion names 2>/dev/null </dev/null; end\n"
	     "complete -c cloche -f");
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++) {
		AUTO_FREE char *copy = strdup(elsewhere[i].options);
		char *at = copy, *word;

		printf("complete -c cloche -n __fish_use_subcommand -a %s -d '%s'\n", elsewhere[i].name,
		       elsewhere[i].text);
		while (at && (word = strsep(&at, " ")))
			if (strlen(word) > 2)
				fish_option(elsewhere[i].name, word + 2);
		printf("complete -c cloche -n '__fish_seen_subcommand_from %s' -F\n", elsewhere[i].name);
	}
	for (size_t i = 0; commands[i]; i++) {
		const struct command *c = commands[i];

		printf("complete -c cloche -n __fish_use_subcommand -a %s -d '%s'\n", c->name, c->text);
		for (const struct option *o = c->options; o && o->name; o++)
			fish_option(c->name, o->name);
		for (const struct option *o = args_common(); o->name; o++)
			fish_option(c->name, o->name);
		if (c->complete == COMPLETE_SANDBOX)
			printf("complete -c cloche -n '__fish_seen_subcommand_from %s' -a '(__cloche_names)'\n",
			       c->name);
		if (c->complete == COMPLETE_COPY)
			printf("complete -c cloche -n '__fish_seen_subcommand_from %s' -F -a '(__cloche_names):'\n",
			       c->name);
		if (c->complete == COMPLETE_WORDS)
			printf("complete -c cloche -n '__fish_seen_subcommand_from %s' -a '%s'\n", c->name, c->words);
	}
}

/* For the scripts: one name per line, quickly or not at all, and never an error. */
static int names(const struct args *a)
{
	struct conn_opts o = a->conn;
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *list = NULL;
	const json_t *s;
	size_t i;

	o.timeout_ms = NAMES_MS;
	if (conn_open(&o, &c, NULL) < 0 || list_sandboxes(c, "", &list, NULL) < 0)
		return 0;
	json_array_foreach(list, i, s)
	{
		const char *name = *show_str(s, "name") ? show_str(s, "name") : show_str(s, "id");

		/* It becomes words of a shell: nothing but what a name may have. */
		if (strlen(name) == strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"))
			puts(name);
	}
	return 0;
}

static int run(struct args *a, struct err *e)
{
	const char *shell;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 1, "bash, zsh or fish", e);
	if (r < 0)
		return r;
	shell = a->rest[0];
	if (!strcmp(shell, "names"))
		return names(a);
	if (!strcmp(shell, "bash")) {
		bash();
	} else if (!strcmp(shell, "zsh")) {
		zsh();
	} else if (!strcmp(shell, "fish")) {
		fish();
	} else {
		err_set(e, ERR_INVALID, -EINVAL, "'%.20s' is no shell this knows", shell);
		err_remedy(e, "there are bash, zsh and fish");
		return -EINVAL;
	}
	return 0;
}

const struct command cmd_completion = {
	.name = "completion",
	.text = "tab completion for bash, zsh and fish",
	.help = help,
	.complete = COMPLETE_WORDS,
	.words = "bash zsh fish",
	.run = run,
};
