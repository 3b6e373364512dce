// What a forked child does with its parent's descriptors. Async-signal-safe: no allocation, no locks.
#pragma once

namespace dslaunch::spawn {

// Marks all of this process's descriptors from 3 on close-on-exec. Returns 0, or errno if /proc is missing too.
int close_descriptors_on_exec();

}  // namespace dslaunch::spawn
