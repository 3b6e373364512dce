#include "comm/backends.hpp"
#include "comm/collective.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options, rendezvous::Store& store) {
  check_member(options.rank, options.size);
  if (options.size == 1) return make_single(options, store);
  return options.device >= 0 ? make_nccl(options, store) : make_gloo(options, store);
}

}  // namespace dslaunch::comm
