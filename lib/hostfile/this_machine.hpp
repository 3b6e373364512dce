// Is a host of the hostfile the machine that we run on? Such a host is reached through a pipe, never through SSH.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.hpp"

namespace dslaunch::hostfile {

// True for localhost, this machine's names (short and full), 127/8, ::1 and the addresses of its interfaces; and for a
// name that resolves to one of those. Only a name that matches nothing else is resolved, which may take as long as the
// resolver does; a name that does not resolve is another machine. Any thread.
bool is_this_machine(const std::string& host);

// The same for all hosts of a job, resolved side by side, so that a dead name server costs one time-out and not one a
// host. A name that the resolver has no answer for by the deadline is another machine. The threads that wait for such
// an answer are left behind, with all signals blocked; they end when the resolver lets go of them. Where the system
// refuses every thread the caller asks, however long that takes.
std::vector<bool> which_are_this_machine(const std::vector<std::string>& hosts, const Deadline& deadline);

// For tests: `resolves_to_us` stands in for the resolver; called by several threads at once.
std::vector<bool> which_are_this_machine(const std::vector<std::string>& hosts, const Deadline& deadline,
                                         std::function<bool(const std::string&)> resolves_to_us);

}  // namespace dslaunch::hostfile
