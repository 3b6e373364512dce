// A request and the way back to the client that has sent it. Plain data, and an interface that tests fake.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::http {

struct Request {
  std::string method, target;  // the target with its query
  std::string host, authorization, content_type;
  std::string body;
};

struct Reply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Answers one request: with one reply, or with a stream that begins, is written and ends. One thread at a time. An
// exchange that is destroyed unanswered answers 500; one whose stream has not ended closes the connection.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual void reply(Reply reply) = 0;
  virtual void begin_stream(const std::string& content_type) = 0;
  virtual void write(std::string part) = 0;
  virtual void end_stream() = 0;
  // The client has closed its connection, or does not read: nothing arrives any more. Any thread.
  virtual bool is_gone() const = 0;
};

}  // namespace dslaunch::http
