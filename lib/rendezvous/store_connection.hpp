// One connection of the store's server: bytes in, bytes out, and its end. The session interprets the bytes. Owned and
// used by the server's io thread only.
#pragma once
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "ports/peer_owner.hpp"
#include "rendezvous/shared_value.hpp"

namespace dslaunch::rendezvous {

class StoreConnection : public std::enable_shared_from_this<StoreConnection> {
 public:
  using Ptr = std::shared_ptr<StoreConnection>;

  // The conversation in one protocol. Owned by its connection.
  class Session {
   public:
    virtual ~Session() = default;
    // Consumes what it can from the front of `input` and returns the number of bytes consumed; the rest is passed again
    // with the bytes that follow. A wire::WireError ends the connection.
    virtual size_t accept(std::string_view input) = 0;
    // The connection has ended. The last call, made only for a session for which `on_proven` was called.
    virtual void ended(const std::string& reason) = 0;
  };

  class Owner {
   public:
    virtual ~Owner() = default;
    // The first byte identifies the protocol. Null: reject the connection.
    virtual std::unique_ptr<Session> open_session(StoreConnection& connection, uint8_t first_byte) = 0;
    virtual void on_proven(StoreConnection& connection) = 0;
    virtual void on_ended(StoreConnection& connection) = 0;
  };

  // `socket` must be configured by prepare_stream_socket.
  StoreConnection(Owner& owner, uint64_t id, boost::asio::ip::tcp::socket socket);

  uint64_t id() const { return id_; }  // unique among the server's connections
  bool proven() const { return proven_; }
  bool ended() const { return closed_ || closing_; }
  boost::asio::ip::address peer() const;
  std::string describe_peer() const;  // address and port
  // The peer is on this machine.
  bool is_from_this_machine() const;
  ports::PeerOwner peer_owner();

  void start();
  // The session has admitted the client: the time limit no longer applies.
  void mark_proven();
  void send(OutputPiece piece);
  void close(const std::string& reason);
  // Sends the queued output before the connection ends, and accepts no more input.
  void close_after_sending(const std::string& reason);

  // The memory that belongs to this connection alone: buffers, and unsent answers without the values shared with the
  // store.
  size_t held_bytes() const { return input_.size() + own_unsent_bytes_ + output_.size() * kPieceBytes; }
  // Memory of values in unsent answers that the store has dropped.
  size_t outlived_unsent_bytes() const;

 private:
  static constexpr size_t kPieceBytes = 2 * sizeof(OutputPiece);  // cost of a queue entry, beside its bytes

  void read();
  void take_input(size_t num_bytes);
  void resize_input(size_t old_bytes, bool was_filled);
  bool append_to_last(const OutputPiece& piece);
  void write_next();

  Owner& owner_;
  const uint64_t id_;
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<Session> session_;
  std::string input_;      // sized for the next read
  size_t num_unused_ = 0;  // bytes at the front of input_ that the session has not consumed
  std::deque<OutputPiece> output_;
  size_t unsent_bytes_ = 0, own_unsent_bytes_ = 0;
  std::string last_reason_;
  bool proven_ = false, closing_ = false, closed_ = false;
};

}  // namespace dslaunch::rendezvous
