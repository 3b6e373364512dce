#include "comm/gloo/full_mesh.hpp"

#include <gloo/common/error.h>
#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/backends.hpp"

namespace dslaunch::comm {

namespace {

// All ranks start connecting at the same moment, so it takes milliseconds unless something is wrong.
constexpr std::chrono::milliseconds kConnectTimeout{20000};
// Gloo treats a wait of zero as expired. Our own deadlines apply instead of Gloo's time-outs; this value only has to be
// long.
constexpr std::chrono::milliseconds kMaxLength{24 * 3600 * 1000};

std::shared_ptr<gloo::transport::Device> open_device(const std::string& address) {
  gloo::transport::tcp::attr attributes(address.c_str());
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("Gloo cannot listen on this host's address '{}': {}", address, error.what()));
  }
}

std::string address_key(const std::string& prefix, int from) {
  return fmt::format("{}/gloo/{}", prefix, from);
}

std::string get_addresses(const std::string& prefix, int from, const CommunicatorOptions& options,
                          rendezvous::Store& store, Deadline deadline) {
  try {
    return store.get(address_key(prefix, from), deadline);
  } catch (const TimeoutError& error) {
    throw TimeoutError(fmt::format("group '{}': member {} of {} published no address for Gloo; {}", options.name, from,
                                   options.size, error.what()));
  }
}

// A wait that ended early without its message was interrupted by abort_all_waits().
bool done_or_aborted(bool done, Deadline deadline) {
  if (!done && !deadline.passed()) throw gloo::IoException("the wait was aborted");
  return done;
}

}  // namespace

FullMesh::FullMesh(const CommunicatorOptions& options, rendezvous::Store& store, AbortFlag& abort_flag,
                   Deadline deadline)
    : device_(open_device(options.host)),
      context_(device_->createContext(options.rank, options.size)),
      armed_{abort_flag} {
  std::string prefix = fresh_key_prefix(options, store, deadline);
  context_->setTimeout(std::min(kConnectTimeout, deadline.left()));
  // One listening address per peer, all in one value: each peer finds its own by position.
  std::string addresses;
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    auto bytes = context_->createPair(peer)->address().bytes();
    addresses.append(bytes.begin(), bytes.end());
  }
  abort_flag.set_abort_action([this] { abort_all_waits(); });
  store.set(address_key(prefix, options.rank), addresses, deadline);
  std::vector<std::string> published(static_cast<size_t>(options.size));
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank) published[peer] = get_addresses(prefix, peer, options, store, deadline);
  }
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer == options.rank) continue;
    size_t one = published[peer].size() / static_cast<size_t>(options.size - 1);
    size_t position = static_cast<size_t>(options.rank > peer ? options.rank - 1 : options.rank);
    auto begin = published[peer].begin() + static_cast<ptrdiff_t>(position * one);
    try {
      context_->getPair(peer)->connect(std::vector<char>(begin, begin + static_cast<ptrdiff_t>(one)));
    } catch (const gloo::Exception& error) {
      abort_flag.check("connecting group '" + options.name + "'");
      throw PeerError(
          -1, "", fmt::format("connecting group '{}'", options.name),
          fmt::format(
              "Gloo cannot connect to member {} (is {} the right address of this host? does a firewall block it?): {}",
              peer, options.host, error.what()));
    }
  }
  context_->setTimeout(kMaxLength);
}

// Any thread; pending and later waits fail.
void FullMesh::abort_all_waits() {
  // Gloo closes all connections of a context when one wait on it times out: a wait for an empty message does that.
  try {
    context_->createUnboundBuffer(nullptr, 0)->waitRecv(nullptr, std::chrono::milliseconds(0));
  } catch (const gloo::Exception&) {
  }
  // That wakes waits for a message that has not begun. Waits for the rest of a partly received message, as from a peer
  // that was killed while sending, must be woken explicitly.
  std::lock_guard lock(buffers_mutex_);
  is_aborted_ = true;
  for (const auto& watched : buffers_) {
    if (auto buffer = watched.lock()) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
}

void FullMesh::watch(const std::shared_ptr<gloo::transport::UnboundBuffer>& buffer) {
  std::lock_guard lock(buffers_mutex_);
  std::erase_if(buffers_, [](const auto& watched) { return watched.expired(); });
  buffers_.push_back(buffer);
  if (!is_aborted_) return;
  buffer->abortWaitRecv();
  buffer->abortWaitSend();
}

FullMesh::Region::Region(FullMesh& mesh, const void* data, size_t bytes)
    : buffer_(mesh.context_->createUnboundBuffer(const_cast<void*>(data), bytes)) {
  mesh.watch(buffer_);
}

void FullMesh::Region::send(int peer, uint64_t tag, size_t offset, size_t bytes) {
  buffer_->send(peer, tag, offset, bytes);
}

void FullMesh::Region::receive(int peer, uint64_t tag, size_t offset, size_t bytes) {
  buffer_->recv(peer, tag, offset, bytes);
}

bool FullMesh::Region::wait_sent(Deadline deadline) {
  try {
    return done_or_aborted(buffer_->waitSend(nullptr, deadline.left()), deadline);
  } catch (const gloo::IoException&) {
    if (deadline.passed()) return false;
    throw;
  }
}

bool FullMesh::Region::wait_received(Deadline deadline) {
  try {
    return done_or_aborted(buffer_->waitRecv(nullptr, deadline.left()), deadline);
  } catch (const gloo::IoException&) {
    if (deadline.passed()) return false;
    throw;
  }
}

}  // namespace dslaunch::comm
