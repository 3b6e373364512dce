// A real sshd on a loopback port, with keys, configuration and a home of its own; nothing of the machine's is read or
// written. Tests that need it end early, with a line, where there is none or we are not root.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "spawn/process.hpp"
#include "support/temp_dir.hpp"

// An address of loopback with a port that nobody listens on, as of now.
inline uint16_t unused_port() {
  dslaunch::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port for a test");
  }
  return ntohs(address.sin_port);
}

inline bool answers(uint16_t port) {
  dslaunch::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

class Sshd {
 public:
  static bool available() {
    return ::geteuid() == 0 && ::access("/usr/sbin/sshd", X_OK) == 0 && ::access("/usr/bin/ssh-keygen", X_OK) == 0;
  }

  explicit Sshd(const std::string& more_config = "") {
    std::filesystem::create_directories(home() / ".ssh");
    ::chmod(home().c_str(), 0755);
    std::filesystem::create_directories("/run/sshd");  // sshd insists on it
    make_key(dir_ / "host_key");
    make_key(client_key());
    std::filesystem::copy_file(client_key() + ".pub", dir_ / "authorized_keys");
    for (int attempt = 0; attempt < 5 && pid_ < 0; ++attempt) start(more_config);
    if (pid_ < 0) throw std::runtime_error("sshd does not start: " + errors());
    trust();
    write(".ssh/config", "Host *\n  IdentityFile " + client_key() + "\n");
    std::filesystem::create_directories(home() / "bin");
    write("bin/ssh", "#!/bin/sh\nexec /usr/bin/ssh -F " + (home() / ".ssh/config").string() +
                         " -o UserKnownHostsFile=" + (home() / ".ssh/known_hosts").string() + " \"$@\"\n");
    ::chmod(ssh_program().c_str(), 0700);
    before_ = ::getenv("HOME") ? ::getenv("HOME") : "";
    ::setenv("HOME", home().c_str(), 1);
    ::unsetenv("SSH_AUTH_SOCK");
  }
  ~Sshd() {
    stop();
    ::setenv("HOME", before_.c_str(), 1);
    if (!path_before_.empty()) ::setenv("PATH", path_before_.c_str(), 1);
  }
  Sshd(const Sshd&) = delete;

  // Also ends the sessions: each is a child, in the server's group or in one of its own.
  void stop() {
    if (pid_ <= 0) return;
    for (pid_t child : children()) ::kill(child, SIGKILL);
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::vector<pid_t> children() const {
    std::string path = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
    std::ifstream file(path);
    std::vector<pid_t> found;
    for (pid_t child; file >> child;) found.push_back(child);
    return found;
  }
  // known_hosts of the test's home: this server's key, or another one.
  void trust() { write(".ssh/known_hosts", known_host("host_key")); }
  void trust_another() {
    make_key(dir_ / "other_key");
    write(".ssh/known_hosts", "# a comment\n" + known_host("other_key"));
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(home() / name) << text; }
  std::string read(const std::filesystem::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  bool running() const { return pid_ > 0; }
  void end_sessions() const {
    for (pid_t child : children()) ::kill(child, SIGKILL);
  }
  // OpenSSH's program with the home of this test: it does not ask HOME.
  std::string ssh_program() const { return (home() / "bin/ssh").string(); }
  // What libssh calls for ProxyJump.
  void put_ssh_into_path() {
    path_before_ = ::getenv("PATH");
    ::setenv("PATH", ((home() / "bin").string() + ":" + path_before_).c_str(), 1);
  }
  // Of the host key, as ssh-keygen tells it.
  std::string fingerprint() const {
    auto started = dslaunch::spawn::start_process(
        {{"/usr/bin/ssh-keygen", "-l", "-f", dir_ / "host_key.pub"}, {{"PATH", "/usr/bin"}}, ""});
    auto& process = std::get<dslaunch::spawn::Process>(started);
    ::waitpid(process.pid, nullptr, 0);
    char line[256]{};
    if (::read(process.out.get(), line, sizeof line - 1) < 0) return "none";
    std::string text = line, hash = text.substr(text.find("SHA256:"));
    return hash.substr(0, hash.find(' '));
  }
  uint16_t port() const { return port_; }
  std::filesystem::path home() const { return dir_ / "home"; }
  std::string client_key() const { return dir_ / "client_key"; }
  std::string errors() const { return read(dir_ / "log"); }
  static void make_key(const std::filesystem::path& path) {
    run({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path.string()});
  }
  static void run(const std::vector<std::string>& argv) {
    auto started = dslaunch::spawn::start_process({argv, {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}}, ""});
    int status = 0;
    auto* process = std::get_if<dslaunch::spawn::Process>(&started);
    if (process == nullptr || ::waitpid(process->pid, &status, 0) < 0 || status != 0) {
      throw std::runtime_error(argv[0] + " failed");
    }
  }

 private:
  std::string known_host(const std::string& key) const {
    return "[127.0.0.1]:" + std::to_string(port_) + " " + read(dir_ / (key + ".pub"));
  }
  void start(const std::string& more_config) {
    port_ = unused_port();
    std::string config = dir_.write(
        "sshd_config", "Port " + std::to_string(port_) + "\nListenAddress 127.0.0.1\nHostKey " + dir_ / "host_key" +
                           "\nAuthorizedKeysFile " + dir_ / "authorized_keys" +
                           "\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n"
                           "KbdInteractiveAuthentication no\nSetEnv HOME=" +
                           home().string() + "\n" + more_config);
    auto started = dslaunch::spawn::start_process(
        {{"/usr/sbin/sshd", "-D", "-f", config, "-E", dir_ / "log"}, {{"PATH", "/usr/bin:/bin"}}, ""});
    auto* process = std::get_if<dslaunch::spawn::Process>(&started);
    if (process == nullptr) return;
    while (!answers(port_)) {
      if (::waitpid(process->pid, nullptr, WNOHANG) != 0) return;  // the port was taken meanwhile: another one
      std::this_thread::yield();
    }
    pid_ = process->pid;
  }

  dslaunch::test::TempDir dir_;
  std::string before_, path_before_;
  uint16_t port_ = 0;
  pid_t pid_ = -1;
};

// A port that takes connections and never says a word.
class SilentPort {
 public:
  SilentPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket_.get(), 64) != 0 ||
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("no port for a test");
    }
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }

 private:
  dslaunch::UniqueFd socket_;
  uint16_t port_ = 0;
};

// A connection that takes a place at an sshd and never speaks.
class Idle {
 public:
  explicit Idle(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    // Dropped itself while the server still counts an earlier connection: then no "SSH-2.0" comes.
    for (char first = 0; first != 'S';) {
      socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        throw std::runtime_error("no idle connection");
      }
      if (::read(socket_.get(), &first, 1) <= 0) first = 0;
    }
  }

 private:
  dslaunch::UniqueFd socket_;
};
