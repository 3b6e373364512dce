#include "http/connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/read.hpp>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"

namespace dslaunch::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;

constexpr size_t kPieceBytes = size_t{64} << 10;               // of a response, written with one time limit
constexpr size_t kReadAhead = size_t{4} << 10;                 // behind a header
constexpr auto kLingerTime = std::chrono::milliseconds(2000);  // for a client to read the last response
constexpr const char* kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text.data(), length};
}

std::string head_of(const Reply& reply, bool keeps_alive) {
  const auto reason = beast_http::obsolete_reason(static_cast<beast_http::status>(reply.status));
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: {}\r\nConnection: {}\r\n", reply.status,
                                std::string_view(reason.data(), reason.size()), date_now(), reply.content_type,
                                keeps_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : reply.headers) out += fmt::format("{}: {}\r\n", name, value);
  return out;
}

std::string text_of(boost::beast::string_view view) {
  return {view.data(), view.size()};
}

}  // namespace

// Passes the calls of any thread on to the connection's.
class Connection::Response final : public Exchange {
 public:
  explicit Response(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
  ~Response() override {
    if (is_ended_) return;
    const bool has_begun = has_begun_;
    post([has_begun](Connection& own) {
      if (has_begun) return own.close();
      own.refuse(500, "the request was not answered: an internal error");
    });
  }

  void reply(Reply reply) override {
    has_begun_ = is_ended_ = true;
    post([reply = std::move(reply)](Connection& own) { own.send(reply); });
  }
  void begin_stream(const std::string& content_type) override {
    has_begun_ = true;
    post([content_type](Connection& own) { own.begin_stream(content_type); });
  }
  void write(std::string part) override {
    if (part.empty()) return;  // as a chunk it would end the stream
    post([part = std::move(part)](Connection& own) { own.stream(part); });
  }
  void end_stream() override {
    is_ended_ = true;
    post([](Connection& own) { own.end_stream(); });
  }
  bool is_gone() const override { return connection_->is_gone_; }

 private:
  template <class Act>
  void post(Act act) {
    asio::post(connection_->socket_.get_executor(), [connection = connection_, act = std::move(act)] {
      if (!connection->is_closed_) act(*connection);
    });
  }

  const std::shared_ptr<Connection> connection_;
  bool has_begun_ = false, is_ended_ = false;
};

Connection::Connection(Owner& owner, asio::ip::tcp::socket socket)
    : owner_(owner),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      buffer_(owner.limits().max_header_bytes + kReadAhead) {
  Code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

void Connection::start() {
  read_head(owner_.limits().header_timeout);
}

// Cancels what is waited for when the time is over: its handler then finds timed_out_.
void Connection::start_timer(std::chrono::milliseconds timeout) {
  timed_out_ = false;
  timer_.expires_after(timeout);
  timer_.async_wait([self = shared_from_this(), number = ++timer_number_](Code code) {
    if (code || number != self->timer_number_ || self->is_closed_) return;
    self->timed_out_ = true;
    Code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::stop_timer() {
  ++timer_number_;
  timer_.cancel();
}

void Connection::read_head(std::chrono::milliseconds timeout) {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(owner_.limits().max_header_bytes));
  parser_->body_limit(owner_.limits().max_body_bytes);
  start_timer(timeout);
  beast_http::async_read_header(socket_, buffer_, *parser_,
                                [self = shared_from_this()](Code code, size_t) { self->on_head(code); });
}

void Connection::on_head(Code code) {
  stop_timer();
  if (is_closed_) return;
  if (code == beast_http::error::end_of_stream || (timed_out_ && !has_begun())) return close();
  if (code) return refuse_failed_read(code);
  take_head();
}

void Connection::take_head() {
  const auto& head = parser_->get();
  request_ = {text_of(head.method_string()),
              text_of(head.target()),
              text_of(head[beast_http::field::host]),
              text_of(head[beast_http::field::authorization]),
              text_of(head[beast_http::field::content_type]),
              {}};
  ++request_number_;
  keeps_alive_ = parser_->keep_alive();
  is_chunked_ = head.version() >= 11;
  if (parser_->chunked()) return refuse(411, "a request needs a Content-Length; chunks are not read");
  if (auto refusal = owner_.handlers().refuse(request_)) {
    keeps_alive_ = keeps_alive_ && parser_->is_done();
    return send(*refusal);
  }
  const auto length = static_cast<size_t>(parser_->content_length().value_or(0));
  if (!owner_.take_bytes(length)) return refuse(503, "too many requests are being read; try again later");
  held_bytes_ = length;
  const bool waits = boost::beast::iequals(head[beast_http::field::expect], "100-continue") && buffer_.size() == 0;
  if (!waits || parser_->is_done()) return read_body();
  start_timer(owner_.limits().write_timeout);
  asio::async_write(socket_, asio::buffer(kContinue, std::char_traits<char>::length(kContinue)),
                    [self = shared_from_this()](Code code, size_t) {
                      self->stop_timer();
                      if (code) return self->close();
                      self->read_body();
                    });
}

void Connection::read_body() {
  if (parser_->is_done()) return handle();
  start_timer(owner_.limits().body_timeout);
  beast_http::async_read(socket_, buffer_, *parser_,
                         [self = shared_from_this()](Code code, size_t) { self->on_body(code); });
}

void Connection::on_body(Code code) {
  stop_timer();
  if (is_closed_) return;
  if (code) return refuse_failed_read(code);
  handle();
}

void Connection::handle() {
  request_.body = std::move(parser_->get().body());
  is_answering_ = true;
  owner_.count_answering(1);
  watch_peer();
  try {
    owner_.handlers().handle(std::exchange(request_, {}), std::make_shared<Response>(shared_from_this()));
  } catch (const std::exception& error) {  // the exchange has answered 500
    log::error("cannot handle a request: {}", error.what());
  }
}

// A client that closes its side while it waits for a response is taken to be gone.
void Connection::watch_peer() {
  if (buffer_.size() > 0) return;  // it has sent its next request
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this(), number = request_number_](Code code) {
                       if (code || self->is_closed_ || !self->is_answering_ || number != self->request_number_) return;
                       char byte = 0;
                       const auto got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
                       if (got == 0 || (got < 0 && errno != EAGAIN)) self->close();
                     });
}

void Connection::refuse(int status, const std::string& message) {
  keeps_alive_ = false;
  send(owner_.handlers().error_reply(status, message));
}

void Connection::refuse_failed_read(Code code) {
  const auto& limits = owner_.limits();
  if (timed_out_) return refuse(408, "the request did not arrive in time");
  if (code == beast_http::error::header_limit || code == beast_http::error::buffer_overflow) {
    return refuse(431, fmt::format("the request's header has more than {} bytes", limits.max_header_bytes));
  }
  if (code == beast_http::error::body_limit) {
    return refuse(413, fmt::format("the request's body has more than {} bytes", limits.max_body_bytes));
  }
  if (code == beast_http::error::partial_message) return refuse(400, "the request ended before it was complete");
  if (code.category() != beast_http::make_error_code(beast_http::error::bad_method).category()) return close();
  refuse(400, "the request is not HTTP/1.1: " + code.message());
}

void Connection::send(const Reply& reply) {
  if (owner_.is_draining()) keeps_alive_ = false;
  is_complete_ = true;
  queue(head_of(reply, keeps_alive_) + fmt::format("Content-Length: {}\r\n\r\n", reply.body.size()) + reply.body);
}

void Connection::begin_stream(const std::string& content_type) {
  if (owner_.is_draining() || !is_chunked_) keeps_alive_ = false;
  const Reply reply{.content_type = content_type, .headers = {{"Cache-Control", "no-cache"}}};
  queue(head_of(reply, keeps_alive_) + (is_chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
}

void Connection::stream(const std::string& part) {
  queue(is_chunked_ ? fmt::format("{:x}\r\n", part.size()) + part + "\r\n" : part);
}

void Connection::end_stream() {
  is_complete_ = true;
  queue(is_chunked_ ? "0\r\n\r\n" : "");
}

void Connection::queue(std::string bytes) {
  unsent_bytes_ += bytes.size();
  const bool all_fit = owner_.add_unsent(bytes.size());
  if (!all_fit || unsent_bytes_ > std::max(owner_.limits().max_unsent_bytes, bytes.size())) return close();
  if (!bytes.empty()) out_.push_back(std::move(bytes));
  if (!is_writing_) write_next();
}

void Connection::write_next() {
  if (out_.empty()) {
    is_writing_ = false;
    if (is_complete_) finish_response();
    return;
  }
  is_writing_ = true;
  start_timer(owner_.limits().write_timeout);
  const size_t count = std::min(kPieceBytes, out_.front().size() - sent_);
  asio::async_write(socket_, asio::buffer(out_.front().data() + sent_, count),
                    [self = shared_from_this()](Code code, size_t bytes) { self->on_written(code, bytes); });
}

void Connection::on_written(Code code, size_t bytes) {
  stop_timer();
  if (is_closed_) return;
  if (code) return close();
  sent_ += bytes;
  unsent_bytes_ -= bytes;
  owner_.remove_unsent(bytes);
  if (sent_ == out_.front().size()) {
    out_.pop_front();
    sent_ = 0;
  }
  write_next();
}

void Connection::finish_response() {
  is_complete_ = false;
  end_exchange();
  if (!keeps_alive_ || owner_.is_draining()) return linger();
  read_head(owner_.limits().idle_timeout);
}

void Connection::end_exchange() {
  if (std::exchange(is_answering_, false)) owner_.count_answering(-1);
  owner_.return_bytes(std::exchange(held_bytes_, 0));
}

// Closing a socket with unread input would reset the connection, and the client might lose the response.
void Connection::linger() {
  parser_.reset();
  buffer_ = {};
  Code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  start_timer(kLingerTime);
  discard();
}

void Connection::discard() {
  socket_.async_read_some(asio::buffer(discarded_), [self = shared_from_this()](Code code, size_t) {
    if (self->is_closed_) return;
    if (code) return self->close();
    self->discard();
  });
}

void Connection::close_if_idle() {
  if (!is_answering_ && !is_writing_ && parser_ && !has_begun()) close();
}

void Connection::close() {
  if (std::exchange(is_closed_, true)) return;
  is_gone_ = true;
  stop_timer();
  Code ignored;
  socket_.close(ignored);
  end_exchange();
  out_.clear();
  owner_.remove_unsent(std::exchange(unsent_bytes_, 0));
  owner_.on_closed(*this);
}

}  // namespace dslaunch::http
