// Tries the agent's keys, then key files; never prompts.
#include <libssh/callbacks.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "spawn/ssh/libssh/session.hpp"

namespace dslaunch::spawn {
namespace {

// libssh 0.10 reports the key files that it tries only in its log, right before it looks for the public half. The list
// is kept per thread, as the log's callback is.
class TriedFiles {
 public:
  TriedFiles() {
    of_this_thread = this;
    ssh_set_log_callback(note);
    ssh_set_log_level(SSH_LOG_DEBUG);
  }
  ~TriedFiles() {
    ssh_set_log_level(SSH_LOG_NOLOG);
    of_this_thread = nullptr;
  }
  TriedFiles(const TriedFiles&) = delete;
  TriedFiles& operator=(const TriedFiles&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  // If only the private half of a key exists, libssh writes the public half beside it. That directory is not ours.
  void remove_written_halves() {
    for (const auto& half : without_public_half_) ::unlink(half.c_str());
    without_public_half_.clear();
  }

 private:
  static void note(int, const char*, const char* line, void*) {
    constexpr std::string_view kMark = "Trying to authenticate with ";
    std::string_view text = line;
    auto at = text.find(kMark);
    if (at == std::string_view::npos || of_this_thread == nullptr) return;
    auto& tried = *of_this_thread;
    tried.names_.emplace_back(text.substr(at + kMark.size()));
    std::string half = tried.names_.back() + ".pub";
    if (::access(half.c_str(), F_OK) != 0) tried.without_public_half_.push_back(half);
  }

  static thread_local TriedFiles* of_this_thread;
  std::vector<std::string> names_, without_public_half_;
};
thread_local TriedFiles* TriedFiles::of_this_thread = nullptr;

// A public half is written and removed within one step; other threads must not see it in between.
std::mutex& key_files_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string describe_key(const std::string& file) {
  ssh_key key = nullptr;
  int result = ssh_pki_import_privkey_file(file.c_str(), nullptr, nullptr, nullptr, &key);
  ssh_key_free(key);
  if (result == SSH_EOF) return {};
  return result == SSH_OK ? file : file + " (needs a passphrase or cannot be read: ssh-add it)";
}

std::string describe_keys(const std::vector<std::string>& files) {
  const char* agent = std::getenv("SSH_AUTH_SOCK");
  std::string text = agent != nullptr && *agent != '\0' ? "the keys of ssh-agent" : "no ssh-agent";
  for (const auto& file : files) {
    if (std::string key = describe_key(file); !key.empty()) text += ", " + key;
  }
  return text;
}

std::string describe_methods(int methods) {
  std::string text;
  const std::pair<int, const char*> kNames[] = {{SSH_AUTH_METHOD_PUBLICKEY, "publickey"},
                                                {SSH_AUTH_METHOD_PASSWORD, "password"},
                                                {SSH_AUTH_METHOD_INTERACTIVE, "keyboard-interactive"},
                                                {SSH_AUTH_METHOD_HOSTBASED, "hostbased"},
                                                {SSH_AUTH_METHOD_GSSAPI_MIC, "gssapi-with-mic"}};
  for (const auto& [method, name] : kNames) {
    if ((methods & method) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

void SshSession::authenticate() {
  TriedFiles tried;
  int result = until_done(SSH_AUTH_AGAIN, "authentication", [&] {
    std::lock_guard lock(key_files_mutex());
    int step = ssh_userauth_publickey_auto(session_, nullptr, nullptr);
    tried.remove_written_halves();
    return step;
  });
  if (result == SSH_AUTH_SUCCESS) return;
  bool lost = result == SSH_AUTH_ERROR && ssh_is_connected(session_) == 0;
  if (lost) {
    throw ConnectError{
        {.phase = "authentication",
         .text = fmt::format("{} closed the connection during authentication: {}", target_.host, error())}};
  }
  std::string why = result == SSH_AUTH_ERROR ? fmt::format(" ({})", error()) : "";
  std::string more = result == SSH_AUTH_PARTIAL ? "a key was accepted, but the server requires further authentication"
                                                : "none of our keys was accepted";
  throw ConnectError{
      {.code = ExitCode::kPermission,
       .phase = "authentication",
       .text = fmt::format("{}@{}: {}{}; tried {}; the server accepts {}. Put a public key into its authorized_keys "
                           "(ssh-copy-id), or use the ssh program: --ssh_program ssh",
                           user_, host_, more, why, describe_keys(tried.names()),
                           describe_methods(ssh_userauth_list(session_, nullptr)))}};
}

}  // namespace dslaunch::spawn
