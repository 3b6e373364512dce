#include "launch/wire.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/wire_fields.hpp"

namespace dslaunch::launch {
namespace {

constexpr int kMostExitCode = 255, kMostSignal = 64;

// The type byte is the message's place in the variant, plus one: a zero byte is never a type.

void write(FieldWriter& to, const RankJob& m) {
  to.put_int(m.rank);
  to.put_int(m.local_rank);
  to.put_texts(m.argv);
  to.put_map(m.env);
}
void write(FieldWriter& to, const Preflight& m) {
  to.put_text(m.worker_version);
  to.put_text(m.model);
  to.put(m.model_bytes, 8);
  to.put(m.model_fingerprint, 8);
}
void write(FieldWriter& to, const JobDescription& m) {
  to.put_text(m.job_id);
  to.put(static_cast<uint8_t>(m.kind), 1);
  to.put_text({reinterpret_cast<const char*>(m.token.data()), m.token.size()});
  to.put_text(m.master_addr);
  to.put(m.master_port, 2);
  to.put_int(m.world_size);
  to.put_int(m.num_nodes);
  to.put_int(m.node_rank);
  to.put_text(m.host);
  to.put_texts(m.rank_hosts);
  to.put_texts(m.node_addresses);
  to.put_text(m.cwd);
  to.put(static_cast<uint8_t>(m.environment_base), 1);
  to.put_map(m.env);
  to.put_text(m.venv);
  to.put(static_cast<uint8_t>(m.binding.kind), 1);
  to.put_text(m.binding.core_list);
  to.put_int(m.restart_count);
  to.put_int(m.max_restarts);
  to.put_map(m.files);
  write(to, m.preflight);
  to.put_int(m.silence_limit.count());
  to.put(m.ranks.size(), 4);
  for (const auto& rank : m.ranks) write(to, rank);
}
void write(FieldWriter& to, const StartRanks& m) {
  to.put(m.master_port, 2);
}
void write(FieldWriter& to, const StopRanks& m) {
  to.put_int(m.grace.count());
}
void write(FieldWriter& to, const SignalRanks& m) {
  to.put_int(m.signal);
}
void write(FieldWriter& to, const AgentHello& m) {
  to.put(m.version, 4);
  to.put_text(m.program_version);
  to.put_int(m.pid);
  to.put_text(m.host_name);
  to.put_text(m.address);
  to.put_texts(m.addresses);
  to.put_texts(m.devices);
  to.put_int(m.num_slots);
}
void write(FieldWriter&, const Heartbeat&) {}
void write(FieldWriter& to, const RanksMissing& m) {
  to.put(m.ranks.size(), 4);
  for (int rank : m.ranks) to.put_int(rank);
}
void write(FieldWriter& to, const SignalTaken& m) {
  to.put_int(m.signal);
}
void write(FieldWriter& to, const JobEnded& m) {
  to.put_int(m.exit_code);
  to.put(m.again, 1);
  to.put_text(m.story);
}
void write(FieldWriter& to, const AgentReady& m) {
  to.put(m.master_port, 2);
}
void write(FieldWriter& to, const AgentFailed& m) {
  to.put_int(m.exit_code);
  to.put_text(m.message);
}
void write(FieldWriter& to, const RankStarted& m) {
  to.put_int(m.rank);
  to.put_int(m.pid);
}
void write(FieldWriter& to, const RankOutput& m) {
  to.put_int(m.rank);
  to.put(static_cast<uint8_t>(m.stream), 1);
  to.put_text(m.bytes);
}
void write(FieldWriter& to, const RankEnded& m) {
  to.put_int(m.rank);
  to.put(static_cast<uint8_t>(m.cause.kind), 1);
  to.put_int(m.cause.number);
  to.put(m.cause.core_dumped, 1);
  to.put_text(m.cause.hint);
  to.put(m.stopped_by_us, 1);
}
void write(FieldWriter& to, const AgentDone& m) {
  to.put_int(m.num_swept);
}

void read(FieldReader& from, RankJob& m) {
  m.rank = from.get_count();
  m.local_rank = from.get_count();
  m.argv = from.get_texts();
  m.env = from.get_map();
}
void read(FieldReader& from, Preflight& m) {
  m.worker_version = from.get_text();
  m.model = from.get_text();
  m.model_bytes = from.get(8);
  m.model_fingerprint = from.get(8);
}
void read(FieldReader& from, JobDescription& m) {
  m.job_id = from.get_text();
  m.kind = from.get_enum(JobKind::kExec);
  std::string token = from.get_text();
  m.token.assign(token.begin(), token.end());
  m.master_addr = from.get_text();
  m.master_port = static_cast<uint16_t>(from.get(2));
  m.world_size = from.get_count();
  m.num_nodes = from.get_count();
  m.node_rank = from.get_count();
  m.host = from.get_text();
  m.rank_hosts = from.get_texts();
  m.node_addresses = from.get_texts();
  m.cwd = from.get_text();
  m.environment_base = from.get_enum(EnvironmentBase::kAgents);
  m.env = from.get_map();
  m.venv = from.get_text();
  m.binding.kind = from.get_enum(kLastBindingKind);
  m.binding.core_list = from.get_text();
  m.restart_count = from.get_count();
  m.max_restarts = from.get_count();
  m.files = from.get_map();
  read(from, m.preflight);
  m.silence_limit = from.get_duration();
  for (uint64_t left = from.get(4); left > 0; --left) read(from, m.ranks.emplace_back());
}
void read(FieldReader& from, StartRanks& m) {
  m.master_port = static_cast<uint16_t>(from.get(2));
}
void read(FieldReader& from, StopRanks& m) {
  m.grace = from.get_duration();
}
void read(FieldReader& from, SignalRanks& m) {
  m.signal = from.get_int(1, kMostSignal);
}
void read(FieldReader& from, AgentHello& m) {
  m.version = static_cast<uint32_t>(from.get(4));
  m.program_version = from.get_text();
  // What follows may differ between versions; the launcher refuses another one by these two fields.
  if (m.version != kWireVersion) return from.skip_rest();
  m.pid = from.get_int();
  m.host_name = from.get_text();
  m.address = from.get_text();
  m.addresses = from.get_texts();
  m.devices = from.get_texts();
  m.num_slots = from.get_count();
}
void read(FieldReader&, Heartbeat&) {}
void read(FieldReader& from, RanksMissing& m) {
  for (uint64_t left = from.get(4); left > 0; --left) m.ranks.push_back(from.get_count());
}
void read(FieldReader& from, SignalTaken& m) {
  m.signal = from.get_int(1, kMostSignal);
}
void read(FieldReader& from, JobEnded& m) {
  m.exit_code = from.get_int(0, kMostExitCode);
  m.again = from.get(1) != 0;
  m.story = from.get_text();
}
void read(FieldReader& from, AgentReady& m) {
  m.master_port = static_cast<uint16_t>(from.get(2));
}
void read(FieldReader& from, AgentFailed& m) {
  m.exit_code = from.get_int(1, kMostExitCode);
  m.message = from.get_text();
}
void read(FieldReader& from, RankStarted& m) {
  m.rank = from.get_count();
  m.pid = from.get_int();
}
void read(FieldReader& from, RankOutput& m) {
  m.rank = from.get_count();
  m.stream = from.get_enum(Stream::kErr);
  m.bytes = from.get_text();
}
void read(FieldReader& from, RankEnded& m) {
  m.rank = from.get_count();
  m.cause.kind = from.get_enum(spawn::ExitCause::Kind::kNotStarted);
  m.cause.number = from.get_int(0, kMostExitCode);
  m.cause.core_dumped = from.get(1) != 0;
  m.cause.hint = from.get_text();
  m.stopped_by_us = from.get(1) != 0;
}
void read(FieldReader& from, AgentDone& m) {
  m.num_swept = from.get_int();
}

template <size_t Index = 0>
Message decode_as(size_t type, FieldReader& from) {
  if constexpr (Index < std::variant_size_v<Message>) {
    if (type != Index) return decode_as<Index + 1>(type, from);
    std::variant_alternative_t<Index, Message> message;
    read(from, message);
    return message;
  } else {
    throw std::out_of_range(fmt::format("there is no message of type {}", type + 1));
  }
}

[[noreturn]] void refuse(std::string_view bytes, std::string_view why) {
  std::string shown;
  for (char c : bytes.substr(0, 60)) shown += c >= 32 && c < 127 ? c : '.';
  throw Error(ExitCode::kInternal,
              fmt::format("the channel between launcher and agent carries something else than messages ({}): \"{}\"",
                          why, shown));
}

}  // namespace

std::string encode(const Message& message) {
  FieldWriter fields;
  fields.put(0, 4);  // the length, once it is known
  fields.put(message.index() + 1, 1);
  std::visit([&](const auto& m) { write(fields, m); }, message);
  std::string frame = fields.take();
  size_t length = frame.size() - 4;
  DSL_CHECK(length <= kMaxFrameBytes, fmt::format("a message of {} bytes", length));
  for (int i = 0; i < 4; ++i) frame[i] = static_cast<char>(length >> (8 * i));
  return frame;
}

std::optional<Message> FrameReader::next() {
  std::string_view unread = std::string_view(buffer_).substr(begin_);
  if (unread.size() < 4) return std::nullopt;
  size_t length = FieldReader(unread).get(4);
  if (length < 1 || length > kMaxFrameBytes) refuse(unread, fmt::format("a frame of {} bytes", length));
  if (unread.size() < 4 + length) return std::nullopt;
  FieldReader fields(unread.substr(4, length));
  std::optional<Message> message;
  try {
    message = decode_as(fields.get(1) - 1, fields);
  } catch (const std::out_of_range& error) {
    refuse(unread, error.what());
  }
  if (!fields.at_end()) refuse(unread, "a frame is longer than its message");
  begin_ += 4 + length;
  if (begin_ == buffer_.size() || begin_ > (1U << 20)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return message;
}

}  // namespace dslaunch::launch
