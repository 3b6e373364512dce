// Is a host of the hostfile the machine that we run on? Such a host is reached through a pipe, never through SSH.
#pragma once
#include <string>

namespace dslaunch::hostfile {

// True for localhost, this machine's names (short and full), 127/8, ::1 and the addresses of its interfaces; and for a
// name that resolves to one of those. Only a name that matches nothing else is resolved, which may take as long as the
// resolver does; a name that does not resolve is another machine. Any thread.
bool is_this_machine(const std::string& host);

}  // namespace dslaunch::hostfile
