// Runs streams through all engines without Python, so that it can be built
// with sanitizers: files, mutants of files, both whole and by random plans, and random
// images through the encoder. Exits with 1 if engines differ or damage goes unnoticed.
//
//   l3_replay PATH...                        decode each file
//   l3_replay --mutate N [--seed S] PATH...  decode N mutants of the files
//   l3_replay --change N [--seed S] PATH...  decode files while they change, N times
//   l3_replay --encode N [--seed S]          encode and decode N random images
//   l3_replay --encode-change N [--seed S]   encode N random images while they change
//   l3_replay --build N [--seed S]           build N files by the rules of the format, decode them
//   l3_replay --corpus PATH                  run PATH/<fuzz target>/* as that target would
//
// With --emulated-share N, emulated lanes decode one input in N. A file whose name begins with that
// of a Status, as those of tests/invalid do, must be refused with it.
//
// Case k of a run with seed S is case 0 of a run with seed S + k.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/change_target.h"
#include "fuzz/checks.h"
#include "fuzz/mutator.h"

namespace {

using l3::fuzz::Bytes;
using l3::fuzz::ChangedCopy;
using l3::fuzz::CheckBuilt;
using l3::fuzz::CheckChange;
using l3::fuzz::CheckDecode;
using l3::fuzz::CheckEncode;
using l3::fuzz::CheckEncodeChanging;
using l3::fuzz::CheckPlan;
using l3::fuzz::Damage;
using l3::fuzz::Decoded;
using l3::fuzz::Dice;
using l3::fuzz::Repair;

constexpr uint64_t kPlansPerFile = 8;

struct Tally {
  uint64_t cases = 0;
  uint64_t failures = 0;
  std::map<uint32_t, uint64_t> statuses;

  void Add(const std::string& name, const std::string& error) {
    ++cases;
    if (error.empty()) return;
    ++failures;
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.c_str());
  }

  int Report(const char* what) const {
    std::printf("%llu %s, %llu failures", static_cast<unsigned long long>(cases), what,
                static_cast<unsigned long long>(failures));
    for (const auto& [status, count] : statuses) {
      std::printf(", %s %llu", l3_status_name(status), static_cast<unsigned long long>(count));
    }
    std::printf("; engines:");
    for (uint32_t engine = 0; engine < kL3TestEngineCount; ++engine) {
      if (l3_test_engine_available(engine)) std::printf(" %s", l3::fuzz::kEngineNames[engine]);
    }
    std::printf("\n");
    return failures == 0 ? 0 : 1;
  }
};

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

std::vector<std::filesystem::path> FindFiles(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.path().extension() == ".l3") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw std::runtime_error("no .l3 files to run");
  return files;
}

int Replay(const std::vector<std::string>& paths) {
  Tally tally;
  for (const std::filesystem::path& path : FindFiles(paths)) {
    const Bytes data = ReadFile(path);
    Decoded decoded;
    std::string error = CheckDecode(data.data(), data.size(), &decoded);
    for (uint64_t seed = 0; error.empty() && seed < kPlansPerFile; ++seed) {
      error = CheckPlan(data.data(), data.size(), seed);
    }
    const std::string name = path.filename().string();
    const size_t status_end = name.find("__");
    if (error.empty() && name[0] == 'k' && status_end != std::string::npos &&
        name.substr(0, status_end) != l3_status_name(decoded.status)) {
      error = l3_status_name(decoded.status);
    }
    tally.Add(path.string(), error);
    ++tally.statuses[decoded.status];
  }
  return tally.Report("files");
}

const Bytes& Pick(const std::vector<Bytes>& files, Dice* dice) {
  return files[dice->Below(static_cast<uint32_t>(files.size()))];
}

int Mutate(const std::vector<std::string>& paths, uint64_t count, uint64_t seed) {
  std::vector<Bytes> seeds;
  for (const std::filesystem::path& path : FindFiles(paths)) seeds.push_back(ReadFile(path));
  Tally tally;
  for (uint64_t i = 0; i < count; ++i) {
    Dice dice(seed + i);
    const Bytes& original = Pick(seeds, &dice);
    Bytes data = original;
    for (size_t n = dice.Range(1, 4); n > 0; --n) Damage(Pick(seeds, &dice), &dice, &data);
    const bool repaired = dice.Below(8) != 0;
    if (repaired) Repair(data.data(), data.size());
    Decoded decoded;
    std::string error = CheckDecode(data.data(), data.size(), &decoded);
    if (error.empty() && decoded.status == L3_OK && !repaired && data != original) {
      error = "damage went unnoticed";
    }
    if (error.empty()) error = CheckPlan(data.data(), data.size(), seed + i);
    tally.Add("--mutate 1 --seed " + std::to_string(seed + i), error);
    ++tally.statuses[decoded.status];
  }
  return tally.Report("mutants");
}

int Change(const std::vector<std::string>& paths, uint64_t count, uint64_t seed) {
  std::vector<Bytes> files;
  for (const std::filesystem::path& path : FindFiles(paths)) {
    Bytes data = ReadFile(path);
    l3_info info;
    if (l3::fuzz::ReadInfo(data.data(), data.size(), &info) == L3_OK) files.push_back(data);
  }
  if (files.empty()) throw std::runtime_error("no file can be parsed");
  Tally tally;
  for (uint64_t i = 0; i < count; ++i) {
    Dice dice(seed + i);
    const Bytes& data = Pick(files, &dice);
    Bytes changed = ChangedCopy(data.data(), data.size(), seed + i);
    if (dice.Below(8) == 0) {  // another file altogether
      changed = Pick(files, &dice);
      changed.resize(data.size());
    }
    tally.Add("--change 1 --seed " + std::to_string(seed + i),
              CheckChange(data.data(), changed.data(), data.size(), seed + i));
  }
  return tally.Report("changes");
}

// Random bytes, as `option` wants them.
int RunRandom(const char* option, l3::fuzz::Check check, uint64_t count, uint64_t seed) {
  Tally tally;
  for (uint64_t i = 0; i < count; ++i) {
    Dice dice(seed + i);
    Bytes data(16 + dice.Below(4000));
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(dice.Byte());
    tally.Add(std::string(option) + " 1 --seed " + std::to_string(seed + i),
              check(data.data(), data.size()));
  }
  return tally.Report("images");
}

int RunCorpora(const std::string& path) {
  Tally tally;
  for (const auto& folder : std::filesystem::directory_iterator(path)) {
    const l3::fuzz::Check check = l3::fuzz::FindCheck(folder.path().filename().string());
    if (check == nullptr) continue;  // of a target in another language
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      const Bytes data = ReadFile(file.path());
      tally.Add(file.path().string(), check(data.data(), data.size()));
    }
  }
  if (tally.cases == 0) throw std::runtime_error("no corpus in " + path);
  return tally.Report("inputs");
}

int Run(const std::vector<std::string>& args) {
  std::map<std::string, std::string> options;
  std::vector<std::string> paths;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].rfind("--", 0) == 0) {
      options[args[i]] = args.at(i + 1);
      ++i;
    } else {
      paths.push_back(args[i]);
    }
  }
  const auto number = [&](const char* option, uint64_t usual) {
    const auto found = options.find(option);
    return found == options.end() ? usual : std::stoull(found->second);
  };
  const uint64_t seed = number("--seed", 0);
  l3::fuzz::limits.emulated_share = static_cast<uint32_t>(number("--emulated-share", 1));
  if (options.count("--corpus") != 0) return RunCorpora(options["--corpus"]);
  for (const auto& [option, check] :
       {std::pair<const char*, l3::fuzz::Check>{"--encode", CheckEncode},
        {"--encode-change", CheckEncodeChanging},
        {"--build", CheckBuilt}}) {
    if (const uint64_t count = number(option, 0)) return RunRandom(option, check, count, seed);
  }
  if (const uint64_t changes = number("--change", 0)) return Change(paths, changes, seed);
  if (const uint64_t mutants = number("--mutate", 0)) return Mutate(paths, mutants, seed);
  return Replay(paths);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "l3_replay: %s\n", error.what());
    return 2;
  }
}
