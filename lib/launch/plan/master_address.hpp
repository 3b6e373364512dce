// --master_addr as the user gives it.
#pragma once
#include <string>

namespace dslaunch::launch {

// Throws UserError(64) for what cannot be a host's name or number, with what to write instead. Pure.
void check_spelling_of_master_address(const std::string& address);

// For a job whose ranks are all on this machine: they have to meet here, or would wait in vain. Throws UserError(69)
// when the address is not this machine's, or cannot be resolved.
void check_master_address_is_here(const std::string& address);

}  // namespace dslaunch::launch
