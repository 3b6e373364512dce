#include "spawn/ssh/push.hpp"

#include <openssl/evp.h>
#include <unistd.h>

#include <set>
#include <span>
#include <string_view>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/small_file.hpp"
#include "spawn/ssh/explain.hpp"
#include "spawn/ssh/run_remote.hpp"

namespace dslaunch::spawn {
namespace {

constexpr const char* kManifest = "SHA256SUMS";
constexpr std::string_view kAnswer = "dslaunch-push: ";
constexpr std::string_view kBegun = "dslaunch-push: begun ";

// Fixed scripts for sh, with the hash as $1. The login shell that starts sh may be any: so the scripts contain no
// single quote, backslash, newline or exclamation mark. `whole` is true in a directory whose contents match the hash.
constexpr std::string_view kPrelude =
    "echo \"dslaunch-push: begun $1\"; umask 077; d=${XDG_CACHE_HOME:-${HOME:?}/.cache}/dslaunch/push; "
    "whole() { cd \"$1\" 2>/dev/null && test \"$(sha256sum <SHA256SUMS 2>/dev/null)\" = \"$2  -\" && "
    "sha256sum -c SHA256SUMS >/dev/null 2>&1; }; "
    "here() { cd \"$d/$1\" && echo \"dslaunch-push: here $(pwd -P)\"; }; ";
constexpr std::string_view kLook =
    "if (whole \"$d/$1\" \"$1\"); then here \"$1\"; else echo \"dslaunch-push: missing\"; fi";
// Hosts may share a home, so another host may be at the same point: the first rename wins for all, as a directory is
// not renamed onto one that has files. A damaged one is moved aside; where several hosts do that at once, the name is
// missing for a moment.
constexpr std::string_view kCopy =
    "set -e; mkdir -p \"$d\"; t=$(mktemp -d \"$d/.aside.XXXXXX\"); clean() { rm -rf \"$t\" \"$t.old\"; }; "
    "trap clean EXIT; trap \"exit 1\" HUP INT TERM; cd \"$t\"; tar -xf -; "
    "(whole \"$t\" \"$1\") || { echo \"what arrived differs from what was sent\" >&2; exit 1; }; cd /; "
    "if mv -T \"$t\" \"$d/$1\" 2>/dev/null || (whole \"$d/$1\" \"$1\"); then :; else "
    "if test -e \"$d/$1\"; then mv -T \"$d/$1\" \"$t.old\"; fi; "
    "mv -T \"$t\" \"$d/$1\" || (whole \"$d/$1\" \"$1\"); fi; "
    "n=0; until (here \"$1\") 2>/dev/null; do n=$((n + 1)); if test $n -gt 50; then here \"$1\"; fi; sleep 0.1; done";

std::string sha256(std::string_view bytes) {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  DSL_CHECK(EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) == 1,
            "SHA-256 failed in libcrypto");
  return to_hex(std::span(digest, size));
}

std::string read_whole(const std::string& path) {
  SmallFile file = read_small_file(path, SIZE_MAX);
  if (file.outcome.ok()) return std::move(file.bytes);
  throw UserError(ExitCode::kNoInput,
                  fmt::format("cannot read {} to copy it to the hosts: {}", path, file.outcome.error()));
}

constexpr size_t kTarBlock = 512;

void pad_to_block(std::string& archive) {
  archive.append((kTarBlock - archive.size() % kTarBlock) % kTarBlock, '\0');
}

// One entry of a ustar archive (POSIX.1-1988): numbers are octal text.
void add_entry(std::string& archive, const std::string& name, int mode, char type, std::string_view content) {
  std::string header(kTarBlock, '\0');
  auto put = [&](size_t offset, std::string_view text) { header.replace(offset, text.size(), text); };
  put(0, name);
  put(100, fmt::format("{:07o}", mode));
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  put(148, "        ");  // the checksum counts its own field as blanks
  header[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (unsigned char byte : header) sum += byte;
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  archive += header;
  archive += content;
  pad_to_block(archive);
}

void check_name(const std::string& name) {
  bool plain = !name.empty() && name.size() <= 100 && name[0] != '/' && name.find("..") == std::string::npos &&
               name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-/") ==
                   std::string::npos;
  DSL_CHECK(plain, "invalid file name to push: " + name);
}

// Our last line; greetings of the login shell may precede it.
std::string answer_in(const std::string& output) {
  auto at = output.rfind(kAnswer);
  if (at == std::string::npos) return {};
  at += kAnswer.size();
  return output.substr(at, output.find('\n', at) - at);
}

struct Answer {
  std::string text;
  std::optional<LinkFailure> failure;
};

Answer ask(const SshTarget& target, std::string_view script, const PushSet& set, std::string_view input,
           const SshOptions& options, Deadline deadline, Deadline start_due) {
  RemoteResult result =
      run_remote(target, {"sh", "-c", std::string(kPrelude) + std::string(script), "dslaunch-push", set.hash}, input,
                 options, deadline, {std::string(kBegun) + set.hash, start_due});
  if (result.failure) return {"", result.failure};
  std::string answer = answer_in(result.out);
  if (result.success() && !answer.empty()) return {answer, std::nullopt};
  std::string said = last_lines(result.err.empty() ? result.out : result.err, 2);
  return {"", LinkFailure{.phase = "push",
                          .text = fmt::format(
                              "cannot copy the programs into the cache on {} (exit code {}): {}; install "
                              "them there and use --remote_path DIR instead",
                              target.host, result.exit_code.value_or(-1), said.empty() ? "it printed nothing" : said)}};
}

constexpr std::string_view kHere = "here ";

}  // namespace

PushSet read_push_set(const std::vector<PushedFile>& files) {
  PushSet set;
  std::string manifest;
  std::set<std::string> dirs;
  for (const auto& file : files) {
    check_name(file.name);
    for (size_t slash = 0; (slash = file.name.find('/', slash)) != std::string::npos; ++slash) {
      std::string dir = file.name.substr(0, slash + 1);
      if (dirs.insert(dir).second) add_entry(set.archive, dir, 0700, '5', {});
    }
    std::string content = read_whole(file.path);
    manifest += sha256(content) + "  " + file.name + "\n";
    add_entry(set.archive, file.name, ::access(file.path.c_str(), X_OK) == 0 ? 0700 : 0600, '0', content);
  }
  add_entry(set.archive, kManifest, 0600, '0', manifest);
  set.archive.append(2 * kTarBlock, '\0');
  set.hash = sha256(manifest);
  return set;
}

PushResult push_programs(const SshTarget& target, const PushSet& set, const SshOptions& options, Deadline deadline,
                         std::chrono::milliseconds start_timeout) {
  PushResult result;
  Answer answer = ask(target, kLook, set, {}, options, deadline, Deadline::after(start_timeout));
  if (!answer.failure && !answer.text.starts_with(kHere)) {
    answer = ask(target, kCopy, set, set.archive, options, deadline, Deadline::after(start_timeout));
    result.copied = !answer.failure;
  }
  result.failure = std::move(answer.failure);
  if (!result.failure) result.dir = answer.text.substr(kHere.size());
  return result;
}

}  // namespace dslaunch::spawn
