#include "unit/ports/holder_process.hpp"

#include <arpa/inet.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace dslaunch::ports {
namespace {

constexpr uid_t kNobody = 65534;

struct Pipe {
  UniqueFd read_end, write_end;
};

Pipe make_pipe() {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

HolderProcess::HolderProcess(const std::function<uint16_t()>& prepare) {
  Pipe pipe = make_pipe();
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uint16_t port = prepare();
    if (write(pipe.write_end.get(), &port, sizeof(port)) != sizeof(port)) _exit(1);
    while (true) pause();
  }
  pipe.write_end.reset();
  REQUIRE(read(pipe.read_end.get(), &port_, sizeof(port_)) == sizeof(port_));
}

void HolderProcess::end() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

HolderProcess::~HolderProcess() {
  end();
}

UniqueFd listen_on(const char* address, uint16_t* port) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_in);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    if (inet_pton(AF_INET6, address, &v6->sin6_addr) != 1) return {};
    v6->sin6_family = AF_INET6;
    length = sizeof(sockaddr_in6);
  }
  UniqueFd fd(socket(storage.ss_family, SOCK_STREAM, 0));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 || listen(fd.get(), 8) != 0) return {};
  length = sizeof(storage);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length);
  *port = ntohs(storage.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  return fd;
}

UniqueFd connect_to(const char* address, uint16_t port) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(port);
  inet_pton(AF_INET, address, &target.sin_addr);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&target), sizeof(target)) != 0) return {};
  return fd;
}

std::string output_of_ordinary_user(const std::function<std::string()>& body) {
  Pipe pipe = make_pipe();
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool ready = getuid() != 0 || (setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
                                   setresuid(kNobody, kNobody, kNobody) == 0);
    std::string text = ready ? body() : "cannot become an ordinary user";
    _exit(write(pipe.write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  pipe.write_end.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(pipe.read_end.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  waitpid(child, nullptr, 0);
  return text;
}

}  // namespace dslaunch::ports
