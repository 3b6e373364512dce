// One connection of the store's server: bytes in, bytes out, and its end. What the bytes mean is its session's. Owned
// and used by the server's io thread only.
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

  // The conversation in one protocol. Lives in its connection.
  class Session {
   public:
    virtual ~Session() = default;
    // Takes what it can use from the front of `input` and returns how many bytes that was; the rest comes again with
    // what follows it. A wire::WireError ends the connection.
    virtual size_t accept(std::string_view input) = 0;
    // The connection has ended. Last call, and only for a session that `on_proven` was called for.
    virtual void ended(const std::string& reason) = 0;
  };

  class Owner {
   public:
    virtual ~Owner() = default;
    // The first byte tells the protocol. Null: turn it away.
    virtual std::unique_ptr<Session> open_session(StoreConnection& connection, uint8_t first_byte) = 0;
    virtual void on_proven(StoreConnection& connection) = 0;
    virtual void on_ended(StoreConnection& connection) = 0;
  };

  // `socket` is prepared as prepare_stream_socket does.
  StoreConnection(Owner& owner, uint64_t id, boost::asio::ip::tcp::socket socket);

  uint64_t id() const { return id_; }  // unlike for every connection of the server
  bool proven() const { return proven_; }
  bool ended() const { return closed_ || closing_; }
  boost::asio::ip::address peer() const;
  std::string describe_peer() const;  // address and port
  // The other end is on this machine.
  bool is_from_this_machine() const;
  ports::PeerOwner peer_owner();

  void start();
  // The session has found that the client may be here: no time limit any more.
  void mark_proven();
  void send(OutputPiece piece);
  void close(const std::string& reason);
  // Sends what is queued before the connection ends, and takes no more input.
  void close_after_sending(const std::string& reason);

  // The memory that this connection alone takes: buffers, and answers that are not sent yet without the values that
  // the store has.
  size_t held_bytes() const { return input_.size() + own_unsent_bytes_ + output_.size() * kPieceBytes; }
  // Of the values in those answers that the store has let go of.
  size_t outlived_unsent_bytes() const;

 private:
  static constexpr size_t kPieceBytes = 2 * sizeof(OutputPiece);  // in the queue, beside its bytes

  void read();
  void take_input(size_t num_bytes);
  void resize_input(size_t old_bytes, bool was_filled);
  bool append_to_last(const OutputPiece& piece);
  void write_next();

  Owner& owner_;
  const uint64_t id_;
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<Session> session_;
  std::string input_;      // as large as the next read may need
  size_t num_unused_ = 0;  // bytes at its front that the session has not taken
  std::deque<OutputPiece> output_;
  size_t unsent_bytes_ = 0, own_unsent_bytes_ = 0;
  std::string last_reason_;
  bool proven_ = false, closing_ = false, closed_ = false;
};

}  // namespace dslaunch::rendezvous
