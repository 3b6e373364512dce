#include "rendezvous/store_connection.hpp"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "base/format.hpp"
#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

namespace asio = boost::asio;
using Code = boost::system::error_code;

namespace {

// Enough for any handshake block, so a client without proof costs no more.
constexpr size_t kLeastInputBytes = 512;
constexpr size_t kMaxReadBytes = 256u << 10;
constexpr size_t kMaxUnsentBytes = 256u << 20;  // a client that does not read is dropped
constexpr size_t kMaxJoinedBytes = 64u << 10;

bool is_own(const OutputPiece& piece) {
  return std::holds_alternative<std::string>(piece);
}

// ::ffff:a.b.c.d and a.b.c.d are the same address.
asio::ip::address plain(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
}

}  // namespace

StoreConnection::StoreConnection(Owner& owner, uint64_t id, asio::ip::tcp::socket socket)
    : owner_(owner), id_(id), socket_(std::move(socket)), input_(kLeastInputBytes, '\0') {}

asio::ip::address StoreConnection::peer() const {
  Code ignored;
  return plain(socket_.remote_endpoint(ignored).address());
}

std::string StoreConnection::describe_peer() const {
  Code ignored;
  return fmt::format("{}, port {}", peer().to_string(), socket_.remote_endpoint(ignored).port());
}

bool StoreConnection::is_from_this_machine() const {
  Code ignored;
  auto from = peer();
  return from.is_loopback() || from == plain(socket_.local_endpoint(ignored).address());
}

ports::PeerOwner StoreConnection::peer_owner() {
  return ports::owner_of_peer(socket_.native_handle());
}

void StoreConnection::start() {
  ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
  read();
}

void StoreConnection::mark_proven() {
  proven_ = true;
  owner_.on_proven(*this);
}

void StoreConnection::read() {
  socket_.async_read_some(asio::buffer(input_.data() + num_unused_, input_.size() - num_unused_),
                          [self = shared_from_this()](Code code, size_t num_bytes) {
                            if (self->closed_ || self->closing_) return;
                            if (code == asio::error::eof) return self->close("connection closed");
                            if (code) return self->close("connection lost: " + code.message());
                            self->take_input(num_bytes);
                          });
}

void StoreConnection::take_input(size_t num_bytes) {
  num_unused_ += num_bytes;
  size_t old_bytes = input_.size();
  size_t taken = 0;
  try {
    if (!session_) session_ = owner_.open_session(*this, static_cast<uint8_t>(input_[0]));
    if (!session_) return close("unknown protocol");
    taken = session_->accept(std::string_view(input_).substr(0, num_unused_));
    if (closed_ || closing_) return;
  } catch (const wire::WireError& error) {
    return close(std::string("protocol error: ") + error.what());
  }
  num_unused_ -= taken;
  if (taken > 0) input_.erase(0, taken);
  resize_input(old_bytes, num_unused_ + taken == old_bytes);
  read();
}

// Small while messages are small, so that thousands of idle clients cost little; large while reads fill the buffer.
void StoreConnection::resize_input(size_t old_bytes, bool was_filled) {
  size_t room = num_unused_ == 0 ? kLeastInputBytes : std::min(old_bytes, kMaxReadBytes);
  if (was_filled) room = std::min(2 * old_bytes, kMaxReadBytes);
  room += num_unused_;
  if (input_.capacity() > 4 * room) input_ = input_.substr(0, num_unused_);
  input_.resize(room);
}

void StoreConnection::send(OutputPiece piece) {
  const size_t num_bytes = bytes_of(piece).size();
  if (ended() || num_bytes == 0) return;
  unsent_bytes_ += num_bytes;
  if (is_own(piece)) own_unsent_bytes_ += num_bytes;
  if (unsent_bytes_ > kMaxUnsentBytes) {
    // Posted: closing notifies the session, which may be in the middle of answering.
    closing_ = true;
    return asio::post(socket_.get_executor(),
                      [self = shared_from_this()] { self->close("does not read the answers to its requests"); });
  }
  if (append_to_last(piece)) return;
  output_.push_back(std::move(piece));
  if (output_.size() == 1) write_next();
}

// A queue of a million one-byte answers would cost many times their bytes. The first piece is being written.
bool StoreConnection::append_to_last(const OutputPiece& piece) {
  auto* last = output_.size() < 2 ? nullptr : std::get_if<std::string>(&output_.back());
  const auto* added = std::get_if<std::string>(&piece);
  if (!last || !added || last->size() + added->size() > kMaxJoinedBytes) return false;
  *last += *added;
  return true;
}

void StoreConnection::write_next() {
  asio::async_write(socket_, asio::buffer(bytes_of(output_.front())),
                    [self = shared_from_this()](Code code, size_t num_bytes) {
                      if (self->closed_) return;
                      if (code) return self->close("connection lost: " + code.message());
                      self->unsent_bytes_ -= num_bytes;
                      if (is_own(self->output_.front())) self->own_unsent_bytes_ -= num_bytes;
                      self->output_.pop_front();
                      if (!self->output_.empty()) return self->write_next();
                      if (self->closing_) self->close(self->last_reason_);
                    });
}

size_t StoreConnection::outlived_unsent_bytes() const {
  size_t total = 0;
  for (const auto& piece : output_) {
    const auto* shared = std::get_if<std::shared_ptr<const SharedValue>>(&piece);
    if (shared && (*shared)->outlives_store()) total += (*shared)->bytes().size();
  }
  return total;
}

void StoreConnection::close(const std::string& reason) {
  if (closed_) return;
  closed_ = true;
  auto self = shared_from_this();  // the owner releases this connection
  Code ignored;
  socket_.close(ignored);
  if (session_ && proven_) session_->ended(reason);
  owner_.on_ended(*this);
}

void StoreConnection::close_after_sending(const std::string& reason) {
  closing_ = true;
  last_reason_ = reason;
  if (output_.empty()) close(reason);
}

}  // namespace dslaunch::rendezvous
