// The NCCL backend of a build without CUDA.
#include "base/error.hpp"
#include "comm/backends.hpp"

namespace dslaunch::comm {

std::unique_ptr<Communicator> make_nccl(const CommunicatorOptions&, rendezvous::Store&) {
  throw UserError(ExitCode::kUnavailable,
                  "this dslaunch was built without CUDA: run ./scripts/setup --cuda and build again, or run with "
                  "--device cpu");
}

}  // namespace dslaunch::comm
