// Is a host of the hostfile the machine that this process runs on? The launcher connects to such a host through a pipe,
// never through SSH.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.hpp"

namespace dslaunch::hostfile {

// True for localhost, this machine's names (short and full), 127/8, ::1 and the addresses of its interfaces; and for a
// name that resolves to one of those. Only a name that matches nothing else is resolved, which may take as long as the
// resolver needs; a name that does not resolve is another machine. Any thread.
bool is_this_machine(const std::string& host);

// The same for all hosts of a job, resolved in parallel, so that a dead name server costs one timeout instead of one
// per host. A name that the resolver has not answered by the deadline is another machine. Threads that still wait for
// the resolver then are left running, with all signals blocked; they end when the resolver returns. If no thread can be
// created, the caller resolves the names itself, however long that takes.
std::vector<bool> which_are_this_machine(const std::vector<std::string>& hosts, const Deadline& deadline);

// For tests: `resolves_to_us` replaces the resolver; several threads call it at the same time.
std::vector<bool> which_are_this_machine(const std::vector<std::string>& hosts, const Deadline& deadline,
                                         std::function<bool(const std::string&)> resolves_to_us);

}  // namespace dslaunch::hostfile
