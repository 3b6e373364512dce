// As much of torch's TCPStore protocol as a rank needs to leave one note in the store of torchrun, or of our own
// agent under `dslaunch exec`, and to find it there.
#pragma once
#include <string>

#include "base/deadline.hpp"

namespace dslaunch::rendezvous {

void leave_note_in_torch_store(const std::string& host, uint16_t port, const std::string& key, const std::string& value,
                               Deadline deadline);
// Waits for the note. Throws TimeoutError naming the key.
std::string find_note_in_torch_store(const std::string& host, uint16_t port, const std::string& key, Deadline deadline);

}  // namespace dslaunch::rendezvous
