#include "cost_models/validation/row.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "ir/spec/document.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/quantity.h"

namespace trireme::cost {
namespace {

// Reads one cell into a row. Errors carry no place: the caller adds it.
using ReadCell = Status (*)(const std::string& text, Row& row);

struct ColumnReader {
  std::string name;
  ReadCell read;
};

Status expected(std::string_view what, const std::string& text) {
  return invalidArgument(fmt::format("expected {}, got {}", what, spec::quoteForMessage(text)));
}

Status readInteger(const std::string& text, int64_t least, int64_t most, std::string_view what,
                   std::optional<int64_t>& out) {
  if (text.empty()) return {};
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || rest != end || value < least || value > most)
    return expected(what, text);
  out = value;
  return {};
}

template <std::string Row::* field>
Status text(const std::string& text, Row& row) {
  row.*field = text;
  return {};
}

template <std::optional<int64_t> Row::* field>
Status count(const std::string& text, Row& row) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return readInteger(text, 1, kMost, "a whole number from 1 to 2^30", row.*field);
}

template <std::optional<double> Row::* field>
Status positive(const std::string& text, Row& row) {
  // Beyond, errors in per cent would have no finite sum.
  constexpr double kLeast = 1e-12, kMost = 1e15;
  if (text.empty()) return {};
  const Result<double> value = spec::parseDecimal(text);
  if (!value.has_value() || !(*value >= kLeast && *value <= kMost))
    return expected("a number from 1e-12 to 1e15", text);
  row.*field = *value;
  return {};
}

Status id(const std::string& text, Row& row) {
  if (text.empty()) return invalidArgument("is empty; every row needs one");
  row.id = text;
  return {};
}

Status scored(const std::string& text, Row& row) {
  std::optional<int64_t> value;
  TRIREME_RETURN_IF_ERROR(readInteger(text, 0, 1, "0 or 1", value));
  row.scored = value == 1;
  return {};
}

Status seqParallel(const std::string& text, Row& row) {
  std::optional<int64_t> value;
  TRIREME_RETURN_IF_ERROR(readInteger(text, 0, 1, "0 or 1", value));
  if (value) row.seqParallel = value == 1;
  return {};
}

Status zero(const std::string& text, Row& row) {
  return readInteger(text, 0, 3, "0, 1, 2 or 3", row.zero);
}

const std::vector<ColumnReader>& columns() {
  static const std::vector<ColumnReader> kColumns = {
      {"id", id},
      {"stack", text<&Row::stack>},
      {"scored", scored},
      {"source", text<&Row::source>},
      {"year", count<&Row::year>},
      {"gpu", text<&Row::gpu>},
      {"gpus", count<&Row::gpus>},
      {"gpus_per_node", count<&Row::gpusPerNode>},
      {"inter_node_gbps_per_gpu", positive<&Row::interNodeGbpsPerGpu>},
      {"model", text<&Row::model>},
      {"params_b", positive<&Row::paramsB>},
      {"layers", count<&Row::layers>},
      {"hidden", count<&Row::hidden>},
      {"heads", count<&Row::heads>},
      {"kv_heads", count<&Row::kvHeads>},
      {"ffn", count<&Row::ffn>},
      {"vocab", count<&Row::vocab>},
      {"seq", count<&Row::seq>},
      {"experts", count<&Row::experts>},
      {"topk", count<&Row::topk>},
      {"global_batch", count<&Row::globalBatch>},
      {"micro_batch", count<&Row::microBatch>},
      {"tp", count<&Row::tp>},
      {"pp", count<&Row::pp>},
      {"dp", count<&Row::dp>},
      {"cp", count<&Row::cp>},
      {"ep", count<&Row::ep>},
      {"vp", count<&Row::vp>},
      {"zero", zero},
      {"seq_parallel", seqParallel},
      {"recompute", text<&Row::recompute>},
      {"schedule", text<&Row::schedule>},
      {"precision", text<&Row::precision>},
      {"tflops_per_gpu", positive<&Row::tflopsPerGpu>},
      {"mfu_or_pct_peak", positive<&Row::mfuOrPctPeak>},
      {"tokens_per_s_per_gpu", positive<&Row::tokensPerSecondPerGpu>},
      {"iter_time_s", positive<&Row::iterTime>},
      {"flop_convention", text<&Row::flopConvention>},
      {"notes", text<&Row::notes>}};
  return kColumns;
}

Status checkHeader(const CsvRecord& header, const std::string& name) {
  const std::vector<std::string>& wanted = rowHeader();
  for (size_t i = 0; i < std::min(header.size(), wanted.size()); ++i) {
    if (header[i].text == wanted[i]) continue;
    return spec::errorAt(
        name, header[i].mark,
        fmt::format("column {} of the header: expected '{}', got {}; the columns are: {}", i + 1,
                    wanted[i], spec::quoteForMessage(header[i].text), fmt::join(wanted, ", ")));
  }
  if (header.size() < wanted.size())
    return spec::errorAt(name, header.back().mark,
                         fmt::format("the header has {} columns, expected {}; '{}' is missing",
                                     header.size(), wanted.size(), wanted[header.size()]));
  if (header.size() > wanted.size())
    return spec::errorAt(
        name, header[wanted.size()].mark,
        fmt::format("the header has {} columns, expected {}; {} is one too many", header.size(),
                    wanted.size(), spec::quoteForMessage(header[wanted.size()].text)));
  return {};
}

}  // namespace

const std::vector<std::string>& rowHeader() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const ColumnReader& column : columns()) names.push_back(column.name);
    return names;
  }();
  return kNames;
}

Result<RowFile> parseRows(const std::string& text, const std::string& name) {
  RowFile file;
  // The header first, by which rows have a cell too many or too few.
  if (const auto header = parseCsv(text.substr(0, text.find('\n')), name); header.has_value())
    TRIREME_RETURN_IF_ERROR(checkHeader(header->front(), name));
  TRIREME_ASSIGN_OR_RETURN(file.records, parseCsv(text, name));
  TRIREME_RETURN_IF_ERROR(checkHeader(file.records[0], name));
  file.records.erase(file.records.begin());
  std::map<std::string, int> lines;  // of ids
  for (const CsvRecord& record : file.records) {
    Row row;
    for (size_t i = 0; i < record.size(); ++i)
      if (const Status status = columns()[i].read(record[i].text, row); !status.ok())
        return Error(spec::errorAt(name, record[i].mark,
                                   fmt::format("{}: {}", columns()[i].name, status.message())));
    const auto [first, isNew] = lines.emplace(row.id, record[0].mark.line);
    if (!isNew)
      return Error(spec::errorAt(
          name, record[0].mark,
          fmt::format("id: {} is that of line {} already; every row needs one of its own",
                      spec::quoteForMessage(row.id), first->second)));
    file.rows.push_back(std::move(row));
  }
  return file;
}

Result<RowFile> loadRows(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(path, kMaxCsvBytes));
  return parseRows(text, path);
}

std::optional<double> measuredSeconds(const Row& row) {
  if (row.iterTime) return row.iterTime;
  if (!row.tokensPerSecondPerGpu || !row.globalBatch || !row.seq || !row.gpus) return std::nullopt;
  const double tokens = static_cast<double>(*row.globalBatch) * static_cast<double>(*row.seq);
  return tokens / (*row.tokensPerSecondPerGpu * static_cast<double>(*row.gpus));
}

std::optional<double> measuredPeakGib(const Row& row) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"peak_mem_gib=", 1.0}, {"peak_mem_gb=", 1e9 / (1 << 30)}, {"peak_mem_mib=", 1.0 / 1024}};
  for (const auto& [key, gib] : kUnits) {
    const size_t found = row.notes.find(key);
    if (found == std::string::npos) continue;
    const char* const begin = row.notes.data() + found + key.size();
    double value = 0;
    const auto [rest, code] = std::from_chars(begin, row.notes.data() + row.notes.size(), value,
                                              std::chars_format::fixed);
    if (code == std::errc() && value > 0) return value * gib;
  }
  return std::nullopt;
}

}  // namespace trireme::cost
