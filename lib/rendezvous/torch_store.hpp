// The part of torch's TCPStore protocol that a rank needs to leave a note in the store of torchrun, or of our own agent
// under `dslaunch exec`, and to read the note there.
#pragma once
#include <string>

#include "base/deadline.hpp"

namespace dslaunch::rendezvous {

void set_in_torch_store(const std::string& host, uint16_t port, const std::string& key, const std::string& value,
                        Deadline deadline);
// Waits for the note. Throws TimeoutError naming the key.
std::string wait_in_torch_store(const std::string& host, uint16_t port, const std::string& key, Deadline deadline);

}  // namespace dslaunch::rendezvous
