#include "launch/channel/wire.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/channel/wire_fields.hpp"

namespace dslaunch::launch {
namespace {

constexpr int kMaxExitCode = 255, kMaxSignal = 64;

// The type byte is the message's index in the variant, plus one: zero is never a type.

void write(FieldWriter& to, const RankJob& m) {
  to.i64(m.rank);
  to.i64(m.local_rank);
  to.texts(m.argv);
  to.map(m.env);
}
void write(FieldWriter& to, const Preflight& m) {
  to.text(m.worker_version);
  to.text(m.model);
  to.u64(m.model_bytes);
  to.u64(m.model_fingerprint);
}
void write(FieldWriter& to, const JobDescription& m) {
  to.text(m.job_id);
  to.choice(m.kind);
  to.count(m.token.size()).bytes(m.token);
  to.text(m.master_addr);
  to.u16(m.master_port);
  to.i64(m.world_size);
  to.i64(m.num_nodes);
  to.i64(m.node_rank);
  to.text(m.host);
  to.texts(m.rank_hosts);
  to.texts(m.node_addresses);
  to.text(m.cwd);
  to.choice(m.environment_base);
  to.map(m.env);
  to.text(m.venv);
  to.choice(m.binding.kind);
  to.text(m.binding.core_list);
  to.i64(m.restart_count);
  to.i64(m.max_restarts);
  to.map(m.files);
  write(to, m.preflight);
  to.i64(m.silence_limit.count());
  to.i64(m.heartbeat_interval.count());
  to.count(m.ranks.size());
  for (const auto& rank : m.ranks) write(to, rank);
}
void write(FieldWriter& to, const StartRanks& m) {
  to.u16(m.master_port);
}
void write(FieldWriter& to, const StopRanks& m) {
  to.i64(m.grace.count());
}
void write(FieldWriter& to, const SignalRanks& m) {
  to.i64(m.signal);
}
void write(FieldWriter& to, const AgentHello& m) {
  to.u32(m.version);
  to.text(m.program_version);
  to.i64(m.pid);
  to.text(m.host_name);
  to.text(m.address);
  to.texts(m.addresses);
  to.texts(m.devices);
  to.text(m.device_error);
  to.i64(m.num_slots);
  to.text(m.command);
  to.u64(m.command_hash);
}
void write(FieldWriter&, const Heartbeat&) {}
void write(FieldWriter& to, const RanksMissing& m) {
  to.count(m.ranks.size());
  for (int rank : m.ranks) to.i64(rank);
}
void write(FieldWriter& to, const SignalTaken& m) {
  to.i64(m.signal);
}
void write(FieldWriter& to, const JobEnded& m) {
  to.i64(m.exit_code);
  to.flag(m.again);
  to.text(m.summary);
}
void write(FieldWriter& to, const AgentReady& m) {
  to.u16(m.master_port);
}
void write(FieldWriter& to, const AgentFailed& m) {
  to.i64(m.exit_code);
  to.text(m.message);
}
void write(FieldWriter& to, const RankStarted& m) {
  to.i64(m.rank);
  to.i64(m.pid);
}
void write(FieldWriter& to, const RankOutput& m) {
  to.i64(m.rank);
  to.choice(m.stream);
  to.text(m.bytes);
}
void write(FieldWriter& to, const RankEnded& m) {
  to.i64(m.rank);
  to.choice(m.cause.kind);
  to.i64(m.cause.number);
  to.flag(m.cause.core_dumped);
  to.text(m.cause.hint);
  to.flag(m.stopped_by_us);
}
void write(FieldWriter& to, const AgentDone& m) {
  to.i64(m.num_leftovers);
}
void write(FieldWriter& to, const RankStates& m) {
  to.count(m.changed.size());
  for (const auto& each : m.changed) {
    to.i64(each.rank);
    to.choice(each.state);
    to.i64(each.pid);
  }
}
void write(FieldWriter& to, const StacksWanted& m) {
  to.i64(m.request);
  to.count(m.ranks.size());
  for (int rank : m.ranks) to.i64(rank);
}
void write(FieldWriter& to, const RankStacks& m) {
  to.i64(m.request);
  to.count(m.stacks.size());
  for (const auto& each : m.stacks) {
    to.i64(each.rank);
    to.i64(each.pid);
    to.text(each.source);
    to.text(each.text);
    to.text(each.note);
  }
  to.text(m.error);
}
void write(FieldWriter& to, const ProcessStuck& m) {
  to.i64(m.rank);
  to.i64(m.process.pid);
  to.u64(m.process.start_ticks);
  to.u8(static_cast<uint8_t>(m.process.state));
  to.text(m.process.wait_channel);
}

void read(FieldReader& from, RankJob& m) {
  m.rank = from.not_negative();
  m.local_rank = from.not_negative();
  m.argv = from.texts();
  m.env = from.map();
}
void read(FieldReader& from, Preflight& m) {
  m.worker_version = from.text();
  m.model = from.text();
  m.model_bytes = from.u64();
  m.model_fingerprint = from.u64();
}
void read(FieldReader& from, JobDescription& m) {
  m.job_id = from.text();
  m.kind = from.choice(JobKind::kExec);
  std::string token = from.text();
  m.token.assign(token.begin(), token.end());
  m.master_addr = from.text();
  m.master_port = from.u16();
  m.world_size = from.not_negative();
  m.num_nodes = from.not_negative();
  m.node_rank = from.not_negative();
  m.host = from.text();
  m.rank_hosts = from.texts();
  m.node_addresses = from.texts();
  m.cwd = from.text();
  m.environment_base = from.choice(EnvironmentBase::kAgents);
  m.env = from.map();
  m.venv = from.text();
  m.binding.kind = from.choice(kLastBindingKind);
  m.binding.core_list = from.text();
  m.restart_count = from.not_negative();
  m.max_restarts = from.not_negative();
  m.files = from.map();
  read(from, m.preflight);
  m.silence_limit = from.duration();
  m.heartbeat_interval = from.duration();
  for (uint32_t left = from.u32(); left > 0; --left) read(from, m.ranks.emplace_back());
}
void read(FieldReader& from, StartRanks& m) {
  m.master_port = from.u16();
}
void read(FieldReader& from, StopRanks& m) {
  m.grace = from.duration();
}
void read(FieldReader& from, SignalRanks& m) {
  m.signal = from.int_between(1, kMaxSignal);
}
void read(FieldReader& from, AgentHello& m) {
  m.version = from.u32();
  m.program_version = from.text();
  // The following fields may differ between versions; the launcher refuses another version by these two.
  if (m.version != kWireVersion) return from.skip_rest();
  m.pid = from.i64();
  m.host_name = from.text();
  m.address = from.text();
  m.addresses = from.texts();
  m.devices = from.texts();
  m.device_error = from.text();
  m.num_slots = from.not_negative();
  m.command = from.text();
  m.command_hash = from.u64();
}
void read(FieldReader&, Heartbeat&) {}
void read(FieldReader& from, RanksMissing& m) {
  for (uint32_t left = from.u32(); left > 0; --left) m.ranks.push_back(from.not_negative());
}
void read(FieldReader& from, SignalTaken& m) {
  m.signal = from.int_between(1, kMaxSignal);
}
void read(FieldReader& from, JobEnded& m) {
  m.exit_code = from.int_between(0, kMaxExitCode);
  m.again = from.flag();
  m.summary = from.text();
}
void read(FieldReader& from, AgentReady& m) {
  m.master_port = from.u16();
}
void read(FieldReader& from, AgentFailed& m) {
  m.exit_code = from.int_between(1, kMaxExitCode);
  m.message = from.text();
}
void read(FieldReader& from, RankStarted& m) {
  m.rank = from.not_negative();
  m.pid = from.i64();
}
void read(FieldReader& from, RankOutput& m) {
  m.rank = from.not_negative();
  m.stream = from.choice(Stream::kErr);
  m.bytes = from.text();
}
void read(FieldReader& from, RankEnded& m) {
  m.rank = from.not_negative();
  m.cause.kind = from.choice(spawn::ExitCause::Kind::kNotStarted);
  m.cause.number = from.int_between(0, kMaxExitCode);
  m.cause.core_dumped = from.flag();
  m.cause.hint = from.text();
  m.stopped_by_us = from.flag();
}
void read(FieldReader& from, AgentDone& m) {
  m.num_leftovers = from.i64();
}
void read(FieldReader& from, RankStates& m) {
  for (uint32_t left = from.u32(); left > 0; --left) {
    auto& each = m.changed.emplace_back();
    each.rank = from.not_negative();
    each.state = from.choice(RankState::kBlocked);
    each.pid = from.i64();
  }
}
void read(FieldReader& from, StacksWanted& m) {
  m.request = from.i64();
  for (uint32_t left = from.u32(); left > 0; --left) m.ranks.push_back(from.not_negative());
}
void read(FieldReader& from, RankStacks& m) {
  m.request = from.i64();
  for (uint32_t left = from.u32(); left > 0; --left) {
    auto& each = m.stacks.emplace_back();
    each.rank = from.not_negative();
    each.pid = from.i64();
    each.source = from.text();
    each.text = from.text();
    each.note = from.text();
  }
  m.error = from.text();
}
void read(FieldReader& from, ProcessStuck& m) {
  m.rank = from.int_between(-1, std::numeric_limits<int>::max());
  m.process.pid = from.not_negative();
  m.process.start_ticks = from.u64();
  m.process.state = static_cast<char>(from.u8());
  m.process.wait_channel = from.text();
}

template <size_t Index = 0>
Message decode_as(size_t type, FieldReader& from) {
  if constexpr (Index < std::variant_size_v<Message>) {
    if (type != Index) return decode_as<Index + 1>(type, from);
    std::variant_alternative_t<Index, Message> message;
    read(from, message);
    return message;
  } else {
    throw WireError(fmt::format("unknown message type {}", type + 1));
  }
}

[[noreturn]] void refuse(std::string_view bytes, std::string_view why) {
  std::string shown;
  for (char c : bytes.substr(0, 60)) shown += c >= 32 && c < 127 ? c : '.';
  throw Error(ExitCode::kInternal,
              fmt::format("unexpected data on the channel between launcher and agent ({}): \"{}\"", why, shown));
}

}  // namespace

std::string encode(const Message& message) {
  FieldWriter fields;
  fields.u32(0);  // replaced by the length below
  fields.u8(static_cast<uint8_t>(message.index() + 1));
  std::visit([&](const auto& m) { write(fields, m); }, message);
  std::string frame = fields.take();
  size_t length = frame.size() - 4;
  DSL_CHECK(length <= kMaxFrameBytes, fmt::format("message too long: {} bytes", length));
  frame.replace(0, 4, ByteWriter().count(length).take());
  return frame;  // moved
}

std::optional<Message> FrameReader::next() {
  std::string_view unread = std::string_view(buffer_).substr(begin_);
  if (unread.size() < 4) return std::nullopt;
  size_t length = ByteReader(unread).u32();
  if (length < 1 || length > kMaxFrameBytes) refuse(unread, fmt::format("frame length {} out of range", length));
  if (unread.size() < 4 + length) return std::nullopt;
  FieldReader fields(unread.substr(4, length));
  std::optional<Message> message;
  try {
    message = decode_as(static_cast<size_t>(fields.u8()) - 1, fields);
  } catch (const WireError& error) {
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
