// The streams that every program expects to be open: cron jobs and careless daemons start theirs without.
#pragma once

namespace dslaunch {

// Opens /dev/null in place of a closed standard stream, so that no file, pipe or socket of ours gets its number: what
// is printed would land in it. First thing in main, before threads.
void open_standard_streams();

enum class OutputState {
  kWritten,
  kReaderLeft,  // whoever read it has gone away: it had what it wanted
  kFailed,      // what was printed did not arrive although somebody would read it: a full disk
};
// Flushes standard output, and says what became of everything that stdio wrote there.
OutputState standard_output_state();

// Whoever read it has gone away.
bool standard_output_is_left();

// Ends the process as SIGPIPE does (a shell calls it 141), without a word, also where that signal is ignored, as below
// Python, or cannot kill, as in pid 1 of a container.
[[noreturn]] void end_as_sigpipe_does();

}  // namespace dslaunch
