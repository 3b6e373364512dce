// One client of the HTTP server: reads its requests one after the other, and writes the responses. On the server's
// thread.
#pragma once
#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "http/server.hpp"

namespace dslaunch::http {

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  // What connections share.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const Limits& limits() const = 0;
    virtual const Handlers& handlers() const = 0;
    virtual bool is_draining() const = 0;
    // Whether a body of so many bytes still fits.
    virtual bool take_bytes(size_t bytes) = 0;
    virtual void return_bytes(size_t bytes) = 0;
    // Of responses; whether all of them together still fit.
    virtual bool add_unsent(size_t bytes) = 0;
    virtual void remove_unsent(size_t bytes) = 0;
    virtual void count_answering(int change) = 0;
    virtual void on_closed(Connection& connection) = 0;
  };

  Connection(Owner& owner, boost::asio::ip::tcp::socket socket);

  void start();
  // Unless a request has begun.
  void close_if_idle();
  void close();

 private:
  class Response;
  using Code = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void read_head(std::chrono::milliseconds timeout);
  void on_head(Code code);
  void take_head();
  void read_body();
  void on_body(Code code);
  void handle();
  void watch_peer();

  void refuse(int status, const std::string& message);
  void refuse_failed_read(Code code);
  void send(const Reply& reply);
  void begin_stream(const std::string& content_type);
  void stream(const std::string& part);
  void end_stream();
  void queue(std::string bytes);
  void write_next();
  void on_written(Code code, size_t bytes);
  void finish_response();
  void linger();
  void discard();
  void end_exchange();
  bool has_begun() const { return parser_ && (parser_->got_some() || buffer_.size() > 0); }

  void start_timer(std::chrono::milliseconds timeout);
  void stop_timer();

  Owner& owner_;
  std::atomic<bool> is_gone_{false};

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  uint64_t timer_number_ = 0;
  bool timed_out_ = false;

  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;  // of the request that is being read
  Request request_;
  uint64_t request_number_ = 0;
  size_t held_bytes_ = 0;
  bool keeps_alive_ = false, is_chunked_ = false, is_answering_ = false, is_closed_ = false;

  std::deque<std::string> out_;
  size_t sent_ = 0, unsent_bytes_ = 0;  // of the first one; of all
  bool is_writing_ = false, is_complete_ = false;
  std::array<char, 1024> discarded_{};
};

}  // namespace dslaunch::http
