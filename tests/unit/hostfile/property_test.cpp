// Properties of the parsers over random input: what an independent writer wrote is read back, filters agree with a
// model of sets, and no garbage gets through or ends in anything but our own error with its place. The seed is fixed; a
// failure names seed and round, and `Random(seed + round)` makes the same input again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "base/error.hpp"
#include "hostfile/choose_source.hpp"
#include "hostfile/filter.hpp"
#include "hostfile/hostfile.hpp"
#include "hostfile/slurm.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;

namespace {

constexpr unsigned kSeed = 20240611;
constexpr unsigned kRounds = 2000;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class Range>
  const auto& pick(const Range& from) {
    return from[static_cast<size_t>(between(0, static_cast<int>(from.size()) - 1))];
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    std::shuffle(list.begin(), list.end(), engine_);
  }

 private:
  std::mt19937 engine_;
};

template <class Body>
void many_rounds(Body body) {
  for (unsigned round = 0; round < kRounds; ++round) {
    INFO("seed " << kSeed << ", round " << round);
    Random random(kSeed + round);
    body(random);
  }
}

// --- names, and a writer of Slurm's ranges that shares nothing with the reader -------------------------------------

struct NumberedName {
  std::string prefix, digits, suffix;
  std::string whole() const { return prefix + digits + suffix; }
};

const std::vector<std::string> kPrefixes{"n", "gpu-", "rack1-node", "a.b_", "x0y"};
const std::vector<std::string> kSuffixes{"", "", "", ".cluster", "-ib"};

std::string padded(int number, int width) {
  std::string digits = std::to_string(number);
  return std::string(static_cast<size_t>(std::max(0, width - static_cast<int>(digits.size()))), '0') + digits;
}

// Distinct names; runs of numbers among them, so that there are ranges to write.
std::vector<NumberedName> random_names(Random& random, int most) {
  std::vector<NumberedName> names;
  std::set<std::string> seen;
  int wanted = random.between(1, most);
  while (static_cast<int>(names.size()) < wanted) {
    std::string prefix = random.pick(kPrefixes), suffix = random.pick(kSuffixes);
    int width = random.between(1, 4), first = random.between(0, 1200), length = random.between(1, 12);
    for (int i = 0; i < length && static_cast<int>(names.size()) < wanted; ++i) {
      NumberedName name{prefix, padded(first + i, width), suffix};
      if (seen.insert(name.whole()).second) names.push_back(name);
    }
  }
  return names;
}

// May `next` stand behind `last` in a range that began with `first`?
bool continues(const NumberedName& first, const NumberedName& last, const NumberedName& next) {
  if (next.prefix != first.prefix || next.suffix != first.suffix) return false;
  int number = std::stoi(last.digits) + 1;
  return padded(number, static_cast<int>(first.digits.size())) == next.digits;
}

std::string compressed(Random& random, const std::vector<NumberedName>& names) {
  std::string out;
  for (size_t begin = 0; begin < names.size();) {
    const NumberedName& head = names[begin];
    size_t end = begin;
    std::string items;
    while (end < names.size() && names[end].prefix == head.prefix && names[end].suffix == head.suffix) {
      size_t last = end;
      while (last + 1 < names.size() && continues(names[end], names[last], names[last + 1]) && !random.chance(5))
        ++last;
      items += (items.empty() ? "" : ",") + names[end].digits;
      if (last > end) items += "-" + names[last].digits;
      end = last + 1;
      if (random.chance(10)) break;
    }
    bool plain = end == begin + 1 && random.chance(50);
    out += (out.empty() ? "" : ",") + (plain ? head.whole() : head.prefix + "[" + items + "]" + head.suffix);
    begin = end;
  }
  return out;
}

std::vector<std::string> whole_names(const std::vector<NumberedName>& names) {
  std::vector<std::string> out;
  for (const auto& name : names) out.push_back(name.whole());
  return out;
}

// --- hostfiles -----------------------------------------------------------------------------------------------------

std::string blanks(Random& random) {
  static const std::vector<std::string> kinds{" ", "  ", "\t", " \t "};
  return random.pick(kinds);
}

std::string noise(Random& random) {
  static const std::vector<std::string> lines{"\n", "   \n", "# a comment slots=x\n", "\t#\n", "\r\n"};
  return random.chance(30) ? random.pick(lines) : std::string();
}

struct WrittenFile {
  std::string text;
  std::vector<Host> hosts;
};

void write_host(Random& random, const NumberedName& name, WrittenFile& file) {
  Host host{name.whole(), {}, {}, {}};
  std::string word = host.name;
  if (random.chance(20)) {
    host.user = "user" + std::to_string(random.between(1, 9));
    word = host.user + "@" + word;
  }
  std::string settings;
  if (random.chance(20)) {
    host.port = static_cast<uint16_t>(random.between(1, 65535));
    if (random.chance(50)) {
      word += ":" + std::to_string(*host.port);
    } else {
      settings += blanks(random) + "port=" + std::to_string(*host.port);
    }
  }
  int count = random.between(1, 9);
  for (int i = 0; i < count; ++i) host.slots.push_back(i);
  if (random.chance(25)) {  // bare, once a slot
    for (int i = 0; i < count; ++i) file.text += noise(random) + word + settings + "\n";
  } else {
    settings += blanks(random) + "slots=" + padded(count, random.between(1, 3));
    if (random.chance(30)) settings += blanks(random) + "max_slots=" + std::to_string(count + random.between(0, 3));
    file.text += noise(random) + (random.chance(20) ? blanks(random) : "") + word + settings;
    file.text += random.chance(20) ? " # said\n" : random.chance(20) ? "\r\n" : "\n";
  }
  file.hosts.push_back(host);
}

WrittenFile random_hostfile(Random& random) {
  WrittenFile file;
  for (const auto& name : random_names(random, 12)) write_host(random, name, file);
  return file;
}

std::string text_of_hosts(const std::vector<Host>& hosts) {
  std::string out;
  for (const auto& host : hosts) {
    out += host.user + "@" + host.name + ":" + (host.port ? std::to_string(*host.port) : "") + "=";
    for (int slot : host.slots) out += std::to_string(slot) + ",";
    out += " ";
  }
  return out;
}

// --- garbage -------------------------------------------------------------------------------------------------------

std::string garbage(Random& random, const std::string& alphabet, int most) {
  std::string out;
  int length = random.between(0, most);
  for (int i = 0; i < length; ++i)
    out += random.chance(3) ? static_cast<char>(random.between(0, 255)) : random.pick(alphabet);
  return out;
}

std::string damaged(Random& random, std::string text, const std::string& alphabet) {
  for (int i = random.between(1, 4); i > 0 && !text.empty(); --i) {
    size_t at = static_cast<size_t>(random.between(0, static_cast<int>(text.size()) - 1));
    switch (random.between(0, 2)) {
      case 0:
        text[at] = random.pick(alphabet);
        break;
      case 1:
        text.erase(at, static_cast<size_t>(random.between(1, 5)));
        break;
      default:
        text.insert(at, 1, random.pick(alphabet));
        break;
    }
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines{""};
  for (char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

// Every line of the message after the first names a place inside of the text.
void check_places_in_file(const std::string& message, const std::string& text) {
  static const std::regex membership("  hosts:([0-9]+):([0-9]+): [^\n]+");
  auto told = lines_of(message), lines = lines_of(text);
  if (told.size() == 1) {  // only a file of comments has no place to name
    CHECK(message.find("names no host") != std::string::npos);
    return;
  }
  for (size_t i = 1; i < told.size(); ++i) {
    if (told[i].starts_with("  and ")) continue;
    std::smatch match;
    INFO(told[i]);
    REQUIRE(std::regex_match(told[i], match, membership));
    size_t line = std::stoul(match[1]), column = std::stoul(match[2]);
    REQUIRE(line >= 1);
    REQUIRE(line <= lines.size());
    CHECK(column >= 1);
    CHECK(column <= lines[line - 1].size() + 1);
  }
}

void check_column(const std::string& message, size_t length) {
  static const std::regex membership("column ([0-9]+): ");
  std::smatch match;
  INFO(message);
  REQUIRE(std::regex_search(message, match, membership));
  CHECK(std::stoul(match[1]) >= 1);
  CHECK(std::stoul(match[1]) <= length + 1);
}

}  // namespace

TEST_CASE("node lists that a writer compressed expand to the same names", "[hostfile][property]") {
  many_rounds([](Random& random) {
    auto names = random_names(random, 60);
    if (random.chance(50)) random.shuffle(names);
    std::string list = compressed(random, names);
    INFO(list);
    CHECK(expand_nodelist(list, "L") == whole_names(names));
  });
}

TEST_CASE("several brackets multiply, the leftmost slowest", "[hostfile][property]") {
  many_rounds([](Random& random) {
    std::vector<std::string> expected{""};
    std::string list;
    for (int group = random.between(1, 3); group > 0; --group) {
      std::string plain = random.pick(kPrefixes);
      int low = random.between(0, 20), high = low + random.between(0, 5), width = random.between(1, 3);
      list += plain + "[" + padded(low, width) + "-" + padded(high, width) + "]";
      int written = static_cast<int>(padded(low, width).size());
      std::vector<std::string> longer;
      for (const auto& name : expected) {
        for (int n = low; n <= high; ++n) longer.push_back(name + plain + padded(n, written));
      }
      expected = longer;
    }
    INFO(list);
    CHECK(expand_nodelist(list, "L") == expected);
  });
}

TEST_CASE("repeat counts that a writer joined expand to the same counts", "[hostfile][property]") {
  many_rounds([](Random& random) {
    std::vector<int> counts;
    std::string list;
    for (int runs = random.between(1, 8); runs > 0; --runs) {
      int count = random.between(0, 64), times = random.between(1, 9);
      counts.insert(counts.end(), static_cast<size_t>(times), count);
      list += (list.empty() ? "" : ",") + std::to_string(count);
      if (times > 1 || random.chance(20)) list += "(x" + std::to_string(times) + ")";
    }
    INFO(list);
    CHECK(expand_repeats(list, "T") == counts);
  });
}

TEST_CASE("a hostfile that was written is read back", "[hostfile][property]") {
  many_rounds([](Random& random) {
    WrittenFile file = random_hostfile(random);
    INFO(file.text);
    std::vector<Host> hosts;
    for (auto& entry : parse_hostfile(file.text, "hosts")) hosts.push_back(entry.host);
    CHECK(text_of_hosts(hosts) == text_of_hosts(file.hosts));
  });
}

TEST_CASE("a range in a hostfile equals its expanded lines", "[hostfile][property]") {
  many_rounds([](Random& random) {
    auto names = random_names(random, 20);
    std::string ranges, lines;
    for (size_t i = 0; i < names.size();) {  // a list on one line needs one prefix and one suffix
      size_t end = i;
      while (end < names.size() && names[end].prefix == names[i].prefix && names[end].suffix == names[i].suffix) ++end;
      std::string items;
      for (size_t k = i; k < end; ++k) items += (k > i ? "," : "") + names[k].digits;
      ranges += names[i].prefix + "[" + items + "]" + names[i].suffix + " slots=3\n";
      for (size_t k = i; k < end; ++k) lines += names[k].whole() + " slots=3\n";
      i = end;
    }
    INFO(ranges);
    std::vector<Host> a, b;
    for (auto& entry : parse_hostfile(ranges, "hosts")) a.push_back(entry.host);
    for (auto& entry : parse_hostfile(lines, "hosts")) b.push_back(entry.host);
    CHECK(text_of_hosts(a) == text_of_hosts(b));
  });
}

TEST_CASE("filters agree with sets of hosts and slots", "[hostfile][property]") {
  many_rounds([](Random& random) {
    std::vector<Host> hosts;
    for (const auto& name : random_names(random, 8)) {
      Host host{name.whole(), {}, {}, {}};
      for (int slot = 0; slot < 10; ++slot) {
        if (random.chance(50)) host.slots.push_back(slot);
      }
      if (host.slots.empty()) host.slots.push_back(random.between(0, 9));
      hosts.push_back(host);
    }
    std::map<std::string, std::set<int>> named;  // empty: all of the host
    std::string filter;
    for (int nodes = random.between(1, 6); nodes > 0; --nodes) {
      const Host& host = random.pick(hosts);
      filter += (filter.empty() ? "" : "@") + host.name;
      auto& slots = named[host.name];
      for (int i = random.between(0, 4); i > 0; --i) {
        int slot = random.pick(host.slots);
        filter += (filter.ends_with(host.name) ? ":" : ",") + std::to_string(slot);
        slots.insert(slot);
      }
    }
    bool include = random.chance(50);
    std::vector<Host> expected;
    for (Host host : hosts) {
      auto found = named.find(host.name);
      std::erase_if(host.slots, [&](int slot) {
        bool hit = found != named.end() && (found->second.empty() || found->second.contains(slot));
        return hit != include;
      });
      if (!host.slots.empty()) expected.push_back(host);
    }
    INFO((include ? "include " : "exclude ") << filter << " of " << text_of_hosts(hosts));
    try {
      auto left = apply_filter(include ? FilterKind::kInclude : FilterKind::kExclude, filter, hosts);
      CHECK(text_of_hosts(left) == text_of_hosts(expected));
      CHECK_FALSE(left.empty());
    } catch (const UserError& error) {
      CHECK(expected.empty());
      CHECK(error.code() == ExitCode::kBadInput);
    }
  });
}

TEST_CASE("garbage in a hostfile is refused with line and column, or read as hosts", "[hostfile][property]") {
  const std::string alphabet = "abn019 \t\n\r#=:@[],-._slots=max_port%";
  many_rounds([&](Random& random) {
    std::string text =
        random.chance(50) ? garbage(random, alphabet, 120) : damaged(random, random_hostfile(random).text, alphabet);
    INFO(text);
    try {
      auto entries = parse_hostfile(text, "hosts");
      CHECK_FALSE(entries.empty());
      for (const auto& entry : entries) {
        CHECK_FALSE(entry.host.name.empty());
        CHECK(entry.host.name[0] != '-');
        CHECK_FALSE(entry.host.slots.empty());
      }
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kBadInput);
      check_places_in_file(error.what(), text);
    }
  });
}

TEST_CASE("garbage in a filter is refused with its column", "[hostfile][property]") {
  const std::vector<Host> pool{{"a", {}, {}, {0, 1}}, {"b", {}, {}, {0}}, {"fe80::1", {}, {}, {0}}};
  many_rounds([&](Random& random) {
    std::string filter = garbage(random, "ab@@::,,0019[]fe8 x", 20);
    INFO(filter);
    try {
      for (const auto& host : apply_filter(FilterKind::kInclude, filter, pool)) CHECK_FALSE(host.slots.empty());
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kBadInput);
      check_column(error.what(), filter.size());
    }
  });
}

TEST_CASE("garbage in Slurm's lists is refused with its column", "[hostfile][property]") {
  many_rounds([](Random& random) {
    std::string list = garbage(random, "nn01239[[]]--,,()x.", 24);
    INFO(list);
    try {
      for (const auto& name : expand_nodelist(list, "L")) CHECK_FALSE(name.empty());
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kContradiction);
      check_column(error.what(), list.size());
    }
    try {
      auto counts = expand_repeats(list, "T");
      CHECK_FALSE(counts.empty());
    } catch (const UserError& error) {
      check_column(error.what(), list.size());
    }
    try {
      int count = count_gres(list, "G");
      CHECK(count >= 0);
    } catch (const UserError& error) {
      check_column(error.what(), list.size());
    }
    CHECK(count_device_list(list) >= 0);
  });
}

TEST_CASE("every environment gives a choice or a typed error", "[hostfile][property]") {
  const std::vector<std::string> names{"SLURM_JOB_ID",
                                       "SLURM_JOB_NODELIST",
                                       "SLURM_JOB_NUM_NODES",
                                       "SLURM_TASKS_PER_NODE",
                                       "SLURM_PROCID",
                                       "SLURM_NODEID",
                                       "SLURM_STEP_ID",
                                       "SLURM_STEP_NODELIST",
                                       "SLURM_STEP_NUM_NODES",
                                       "SLURM_STEP_TASKS_PER_NODE",
                                       "SLURM_GPUS_ON_NODE",
                                       "SLURM_GPUS_PER_NODE",
                                       "SLURM_GPUS",
                                       "SLURM_GPUS_PER_TASK",
                                       "SLURM_JOB_GPUS",
                                       "SLURMD_NODENAME",
                                       "SLURM_PTY_PORT",
                                       "SLURM_HET_SIZE",
                                       "ENVIRONMENT",
                                       "PET_NNODES",
                                       "PET_NODE_RANK",
                                       "PET_NPROC_PER_NODE",
                                       "PET_RDZV_ENDPOINT",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "RANK",
                                       "WORLD_SIZE",
                                       "KUBERNETES_SERVICE_HOST",
                                       "OMPI_COMM_WORLD_RANK",
                                       "OMPI_COMM_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_LOCAL_SIZE",
                                       "PMI_RANK",
                                       "PMI_SIZE"};
  const std::vector<std::string> values{"0",      "1",        "2",     "3",       "-1",  "x",   "n[1-2]",
                                        "n1",     "n[1-3],m", "1(x2)", "2(x3),1", "2:4", "2:2", "gpu:8",
                                        "a100:4", "0-3",      "n[",    "BATCH",   "h:80"};
  many_rounds([&](Random& random) {
    Environment environment;
    for (const auto& name : names) {
      if (random.chance(35)) environment[name] = random.pick(values);
    }
    HostOptions options;
    if (random.chance(20)) options.num_nodes = random.between(1, 4);
    try {
      Source source = choose_source(options, {environment, [](const std::string&) { return false; }});
      if (source.membership) {
        CHECK(source.membership->node_rank >= 0);
        CHECK(source.membership->node_rank < source.membership->num_nodes);
        CHECK((source.membership->num_nodes == 1 || !source.membership->master_addr.empty()));
      }
      if (source.slurm) {
        CHECK(source.slurm->allocation.hosts.size() == static_cast<size_t>(source.slurm->num_nodes));
        for (const auto& host : source.slurm->allocation.hosts) CHECK_FALSE(host.slots.empty());
      }
    } catch (const UserError& error) {
      CHECK(error.code() == ExitCode::kContradiction);
      std::string message = error.what();
      INFO(message);
      CHECK(std::any_of(names.begin(), names.end(),
                        [&](const std::string& name) { return message.find(name) != std::string::npos; }));
    }
  });
}
