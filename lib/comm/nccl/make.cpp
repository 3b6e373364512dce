#include "comm/backends.hpp"
#include "comm/module.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_nccl(const CommunicatorOptions& options, rendezvous::Store& store) {
  auto make = reinterpret_cast<ModuleFactory>(Module::cuda().symbol("dslaunch_make_nccl"));
  return std::unique_ptr<Communicator>(make(options, store));
}

}  // namespace dslaunch::comm
