// The streams that every program expects to be open: cron jobs and careless daemons start theirs without.
#pragma once

namespace dslaunch {

// Opens /dev/null in place of a closed standard stream, so that no file, pipe or socket of ours gets its number: what
// is printed would land in it. First thing in main, before threads.
void open_standard_streams();

// Flushes standard output. True when what was printed did not arrive although somebody would read it: a full disk. A
// reader that went away had what it wanted.
bool standard_output_failed();

// Whoever read it has gone away.
bool standard_output_is_left();

}  // namespace dslaunch
