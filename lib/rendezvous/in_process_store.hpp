// The store for a world size of one: a map in this process. Any thread.
#pragma once
#include <memory>

#include "rendezvous/store.hpp"

namespace dslaunch::rendezvous {

std::unique_ptr<Store> make_in_process_store();

}  // namespace dslaunch::rendezvous
