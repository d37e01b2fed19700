/* fork, exec, wait. */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

enum { NOT_FOUND = 127, LOG_TAIL = 800 };

static void become(char *const *argv, const char *log)
{
    int file = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if ((file >= 0) && (dup2(file, STDOUT_FILENO) >= 0) && (dup2(file, STDERR_FILENO) >= 0)) {
        execvp(argv[0], argv);
    }
    _exit(NOT_FOUND);
}

static void show_tail(const char *log)
{
    char tail[LOG_TAIL + 1];
    FILE *file = fopen(log, "r");
    size_t n;

    if (file == NULL) {
        return;
    }
    if (fseek(file, -(long)LOG_TAIL, SEEK_END) != 0) {
        rewind(file);
    }
    n = fread(tail, 1, LOG_TAIL, file);
    tail[n] = '\0';
    fclose(file);
    bert_say("end of %s:\n%s", log, tail);
}

bool tool_run(char *const *argv, const char *log, const char *package)
{
    pid_t child = fork();
    int state = 0;

    if (child == 0) {
        become(argv, log);
    }
    if (child < 0) {
        return bert_fail("cannot start %s: %s", argv[0], strerror(errno));
    }
    while ((waitpid(child, &state, 0) < 0) && (errno == EINTR)) {
    }
    if (WIFEXITED(state) && (WEXITSTATUS(state) == 0)) {
        return true;
    }
    if (WIFEXITED(state) && (WEXITSTATUS(state) == NOT_FOUND)) {
        return bert_fail("%s is not installed: apt-get install %s", argv[0], package);
    }
    show_tail(log);
    return bert_fail("%s failed", argv[0]);
}
