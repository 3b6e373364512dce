#include "base/format.hpp"
#include "comm/backends.hpp"

namespace dslaunch::comm {

std::string fresh_key_prefix(const CommunicatorOptions& options, rendezvous::Store& store, Deadline deadline) {
  int64_t round = store.add(fmt::format("comm/{}/made/{}", options.name, options.rank), 1, deadline);
  return fmt::format("comm/{}/{}", options.name, round);
}

}  // namespace dslaunch::comm
