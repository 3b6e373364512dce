#include "comm/backends.hpp"
#include "comm/modules.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_nccl(const CommunicatorOptions& options, rendezvous::Store& store) {
  auto make = cuda_module().function<ModuleFactory>("dslaunch_make_nccl");
  return std::unique_ptr<Communicator>(make(options, store));
}

}  // namespace dslaunch::comm
