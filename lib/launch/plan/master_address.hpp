// Checks of the user's --master_addr.
#pragma once
#include <string>

namespace dslaunch::launch {

// Throws UserError(64), with a hint what to write instead, if `address` cannot be a host name or address. Pure.
void check_spelling_of_master_address(const std::string& address);

// For a job whose ranks are all on this machine: they must meet on this machine, or they would wait until the timeout.
// Throws UserError(69) when the address is not this machine's, or cannot be resolved.
void check_master_address_is_here(const std::string& address);

}  // namespace dslaunch::launch
