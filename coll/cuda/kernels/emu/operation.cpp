#include "operation.h"

#include <stdio.h>
#include <stdlib.h>

namespace emu {

namespace {

constexpr uint32_t kMaxChannels = 3;

// A Maker draws one operation.
class Maker {
 public:
  explicit Maker(World &world) : w(world), r(world.machine.random), n(world.ranks), op() {
    op.args.resize(n);
    op.norms.resize(n);
    op.absent.assign(n, false);
    channels = 1 + r.below(kMaxChannels);
    protocol = Protocol(r.below(3));
    uint32_t slot = w.comms[0].chunk_slot;
    chunk = 128 * (1 + r.below(slot / 128));
  }

  Operation draw();

 private:
  void *kernel(const std::string &name, const std::string &how = "");
  std::string over(const char *base) const { return std::string(base) + "_" + protocol_name(protocol); }
  std::string of_type(const std::string &base) const { return base + "_" + type_name(type); }
  std::string typed(const std::string &base) const { return of_type(base) + "_" + op_name(what); }
  void common(uint32_t roles);
  size_t longest(uint32_t ch) const;
  size_t length(uint32_t ch);
  std::vector<size_t> parts(bool none_empty);
  void draw_type();
  void shorten();
  void draw_per();
  void scale();
  void reduce(const Span &to, const std::vector<Span> &from);

  void exchange_any();
  void exchange_even();
  void exchange_direct();
  void relay_root();
  void chain_root();
  void reduce_one_hop();
  void allreduce();
  void combine();
  void norm();
  Span numbers(int rank, size_t bytes);

  World &w;
  Random &r;
  int n;
  Operation op;
  uint32_t channels, chunk, per = 0;  // per: threads for each peer, if it is a short operation
  Protocol protocol;
  size_t element = 1;
  int type = 0, what = 0;
  Scaling scaling = {0, 0, 1};
};

// kernel returns a kernel, after which it names the operation.
void *Maker::kernel(const std::string &name, const std::string &how) {
  w.operation = op.name = name + how;
  void *k = find(name);
  if (!k) {
    fprintf(stderr, "%s: none of movement.cu, reduction.cu and norm.cu has this kernel\n", name.c_str());
    exit(2);
  }
  return k;
}

// common sets what all operations have.
void Maker::common(uint32_t roles) {
  op.grid = {channels * roles, 1, 1};
  op.lines = protocol == kLL128;
  op.threads = per ? per * (n - 1) : w.threads;
  const uint32_t sign = uint32_t(r.next());
  for (Args &a : op.args) {
    a.sign = sign;
    a.channels = channels;
    for (uint32_t left = per; left > 1; left /= 2) a.row++;
    a.chunk = chunk;
    a.root = -1;
    a.scale = scaling.kind;
    a.factor = scaling.factor;
    a.divisor = scaling.divisor;
    for (int p = 0; p < n; p++) a.to[p] = a.from[p] = uint8_t(channels);
  }
}

// longest is what fits in the slots of so many channels, and for chunks what
// takes a few rounds of them.
size_t Maker::longest(uint32_t ch) const {
  const Comm &c = w.comms[0];
  const size_t units = size_t(ch) * 2 * w.threads;
  switch (protocol) {
    case kLL: return per ? size_t(ch) * per * 8 : units * 8;
    case kLL128: return units / 8 * 112;
    case kSimple: return size_t(ch) * chunk * (c.depth + 6);
  }
  return 0;
}

// length draws a message's length, in whole elements and never 0.
size_t Maker::length(uint32_t ch) {
  const size_t most = longest(ch) / element;
  switch (r.below(4)) {
    case 0: return element * (1 + r.below(3));
    case 1: return element * (1 + r.below(uint32_t(most)));
    case 2: return element * (most - r.below(2));
    default: return element * (1 + r.below(uint32_t(std::min<size_t>(most, 300))));
  }
}

// shorten makes it a short operation, if it can be one.
void Maker::shorten() {
  if (protocol == kLL && r.one_in(2)) draw_per();
}

void Maker::draw_per() {
  per = 32;
  while (2 * per * (n - 1) <= 512 && r.one_in(2)) per *= 2;
}

// parts draws the lengths of the ranks' parts.
std::vector<size_t> Maker::parts(bool none_empty) {
  std::vector<size_t> v(n);
  size_t even = length(channels);
  bool same = r.one_in(2);
  for (size_t &s : v) s = same ? even : !none_empty && r.one_in(4) ? 0 : length(channels);
  return v;
}

void Maker::draw_type() {
  type = types()[r.below(uint32_t(types().size()))];
  what = int(r.below(kOps));
  element = size_of(type);
  bool integer = type < 6;
  if (r.one_in(3)) scaling = {1, r.next(), 1};
  if (integer && r.one_in(3)) scaling = {2, 0, 1 + r.below(9)};
}

void Maker::reduce(const Span &to, const std::vector<Span> &from) {
  std::vector<const char *> in;
  for (const Span &s : from) in.push_back(s.want());
  std::vector<char> result(to.size);
  emu::reduce(type, what, result.data(), in.data(), int(in.size()), to.size, scaling);
  memcpy(to.want(), result.data(), to.size);
}

// exchange_any: any rank sends any length to any other one, or nothing.
void Maker::exchange_any() {
  element = size_t(1) << r.below(5);
  shorten();
  op.kernel = (Kernel *)kernel(over("exchange"), std::string(per ? ", short" : "") + ", any pairs");
  common(protocol == kSimple ? 2 : 1);
  const uint32_t density = w.one_way ? 1 : 1 + r.below(4);
  std::vector<std::vector<size_t>> bytes(n, std::vector<size_t>(n));
  for (int from = 0; from < n; from++) {
    size_t before = 0;
    uint8_t over = 0;
    for (int to = 0; to < n; to++) {
      // Some are an element shorter or longer than the one before, over the same channels.
      const bool near = before > element && r.one_in(2);
      const uint8_t ch = per ? uint8_t(channels) : near ? over : uint8_t(1 + r.below(channels));
      op.args[from].to[to] = op.args[to].from[from] = ch;
      if (w.one_way ? from >= to : from != to && density > 1 && !r.one_in(density)) continue;
      before = bytes[from][to] = near ? std::min(r.one_in(2) ? before - element : before + element, longest(ch) / element * element) : length(ch);
      over = ch;
    }
  }
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    bool nothing = true;
    for (int p = 0; p < n; p++) {
      nothing &= !bytes[i][p] && !bytes[p][i];
      a.send[p] = bytes[i][p];
      a.recv[p] = bytes[p][i];
    }
    op.absent[i] = nothing && r.one_in(2);
  }
  // The sources are taken down before anything is written.
  // Several peers may get some of the same.
  std::vector<std::vector<std::vector<char>>> data(n, std::vector<std::vector<char>>(n));
  std::vector<Span> last(n);
  for (int i = 0; i < n; i++)
    for (int p = 0; p < n; p++) {
      if (!bytes[i][p]) continue;
      Span s = w.input(i, bytes[i][p], element);
      if (last[i].size >= bytes[i][p] && r.one_in(2)) s = last[i].part(0, bytes[i][p]);
      last[i] = s;
      op.args[i].in[p] = s.address();
      data[i][p].assign(s.want(), s.want() + s.size);
      if (p == i) op.args[i].out[i] = s.address();  // in place, if it stays so
    }
  for (int i = 0; i < n; i++)
    for (int p = 0; p < n; p++) {
      if (!bytes[p][i] || (p == i && r.one_in(2))) continue;
      Span s = w.output(i, bytes[p][i], element);
      op.args[i].out[p] = s.address();
      memcpy(s.want(), data[p][i].data(), s.size);
    }
}

// exchange_even: AllToAll or AllGather, in place or not.
void Maker::exchange_even() {
  element = size_t(1) << r.below(5);
  const bool gather = r.one_in(2), in_place = r.one_in(2);
  // In place, a phase needs a peer that both takes and gives.
  const bool phased = protocol == kSimple && (gather || !in_place || (n & (n - 1)) == 0) && r.one_in(2);
  shorten();
  op.kernel = (Kernel *)kernel(over("exchange"), std::string(per ? ", short" : "") + (gather ? ", gather" : ", all to all") + (in_place ? " in place" : "") + (phased ? " by phases" : ""));
  common(protocol == kSimple ? 2 : 1);
  std::vector<size_t> part = parts(true);
  if (!gather) part.assign(n, part[0]);
  std::vector<Span> in(n), out(n), mine(n);  // mine: messages to the rank itself, of a group that is in place for others
  std::vector<size_t> at(n + 1);
  for (int p = 0; p < n; p++) at[p + 1] = at[p] + part[p];
  for (int i = 0; i < n; i++) {
    if (in_place && !gather && !phased && protocol == kSimple && r.one_in(2)) mine[i] = w.input(i, length(channels), element);
    if (!in_place) in[i] = w.input(i, gather ? part[i] : at[n], element);
    out[i] = w.output(i, at[n], element);
    if (in_place) in[i] = gather ? out[i].part(at[i], part[i]) : out[i];
  }
  std::vector<std::vector<char>> data(n);
  for (int i = 0; i < n; i++) data[i].assign(in[i].want(), in[i].want() + in[i].size);
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    a.symmetric = 1;
    a.phased = phased;
    a.in_place = in_place && !gather;
    for (int p = 0; p < n; p++) {
      a.send[p] = part[i];
      a.recv[p] = part[p];
      a.in[p] = gather ? in[i].address() : in[i].address() + at[p];
      a.out[p] = out[i].address() + at[p];
      memcpy(out[i].want() + at[p], data[p].data() + (gather ? 0 : at[i]), part[p]);
    }
    if (mine[i].size) {
      Span to = w.output(i, mine[i].size, element);
      a.send[i] = a.recv[i] = to.size;
      a.in[i] = mine[i].address();
      a.out[i] = to.address();
      memcpy(to.want(), mine[i].want(), to.size);
    }
  }
}

// exchange_direct: any rank writes to any other one's memory; or an AllGather, maybe in place.
void Maker::exchange_direct() {
  element = size_t(1) << r.below(5);
  protocol = kSimple;
  const bool gather = r.one_in(2), in_place = gather && r.one_in(2);
  op.kernel = (Kernel *)kernel("exchange_direct", std::string(gather ? ", gather" : ", any pairs") + (in_place ? " in place" : ""));
  common(2);
  const std::vector<size_t> part = parts(true);
  const uint32_t density = 1 + r.below(3);
  std::vector<std::vector<size_t>> bytes(n, std::vector<size_t>(n));
  for (int from = 0; from < n; from++)
    for (int to = 0; to < n; to++) bytes[from][to] = gather ? part[from] : density == 1 || r.one_in(density) ? length(channels) : 0;
  size_t most = 0;
  for (const std::vector<size_t> &of : bytes) most = std::max(most, *std::max_element(of.begin(), of.end()));
  const size_t rows = (most + 16 * channels * w.threads - 1) / (16 * channels * w.threads) + r.below(2);
  for (Args &a : op.args) a.chunk = uint32_t(rows * w.threads);
  std::vector<std::vector<Span>> in(n, std::vector<Span>(n)), out = in;
  std::vector<size_t> at(n + 1);
  for (int p = 0; p < n; p++) at[p + 1] = at[p] + part[p];
  // Inputs first: they may be some of any memory that is there.
  for (int i = 0; i < n; i++) {
    Span own;
    if (gather && !in_place) own = w.input(i, part[i], element);
    for (int p = 0; p < n; p++)
      if (bytes[i][p]) in[i][p] = gather ? own : w.input(i, bytes[i][p], element);
  }
  for (int i = 0; i < n; i++) {
    Span whole;
    if (gather) whole = w.output(i, at[n], element);
    for (int p = 0; p < n; p++) {
      if (in_place) in[i][p] = whole.part(at[i], part[i]);
      if (bytes[p][i]) out[i][p] = gather ? whole.part(at[p], part[p]) : w.output(i, bytes[p][i], element);
    }
  }
  std::vector<std::vector<std::vector<char>>> data(n, std::vector<std::vector<char>>(n));
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    bool nothing = true;
    for (int p = 0; p < n; p++) {
      nothing &= !bytes[i][p] && !bytes[p][i];
      a.send[p] = bytes[i][p];
      a.recv[p] = bytes[p][i];
      a.in[p] = in[i][p].address();
      a.out[p] = out[p][i].address();
      if (bytes[i][p]) data[i][p].assign(in[i][p].want(), in[i][p].want() + bytes[i][p]);
    }
    op.absent[i] = nothing && r.one_in(2);
  }
  for (int i = 0; i < n; i++)
    for (int p = 0; p < n; p++)
      if (bytes[p][i]) memcpy(out[i][p].want(), data[p][i].data(), bytes[p][i]);
}

// relay_root: a Broadcast in which the others pass parts on.
void Maker::relay_root() {
  element = size_t(1) << r.below(5);
  protocol = kSimple;
  const int root = int(r.below(n));
  op.kernel = (Kernel *)kernel("relay_simple", " from " + std::to_string(root));
  common(3);
  uint32_t owners = 0;
  while (!owners) owners = (r.one_in(2) ? ~0u : uint32_t(r.next())) & ((1u << n) - 1) & ~(1u << root);
  std::vector<size_t> part = parts(false), at(n + 1);
  for (int p = 0; p < n; p++) at[p + 1] = at[p] + (owners >> p & 1 ? part[p] : part[p] = 0);
  Span in = w.input(root, at[n], element);
  std::vector<char> data(in.want(), in.want() + in.size);
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    a.root = root;
    a.owners = owners;
    Span out = i == root && r.one_in(2) ? in : w.output(i, at[n], element);
    memcpy(out.want(), data.data(), data.size());
    for (int p = 0; p < n; p++) {
      a.in[p] = i == root ? in.address() + at[p] : nullptr;
      a.out[p] = out.address() + at[p];
      a.send[p] = i == root ? part[p] : 0;
      a.recv[p] = part[p];
    }
  }
}

// chain_root: a Broadcast or a Reduce from rank to rank.
void Maker::chain_root() {
  const bool reduces = r.one_in(2);
  if (reduces)
    draw_type();
  else
    element = size_t(1) << r.below(5);
  const std::string chain = reduces ? typed("reduce_chain") : "chain_simple";
  if (!find(chain)) {  // it would round
    reduce_one_hop();
    return;
  }
  protocol = kSimple;
  const int root = int(r.below(n));
  op.kernel = (Kernel *)kernel(chain, (reduces ? " to " : " from ") + std::to_string(root));
  common(1);
  const size_t bytes = length(channels);
  const bool in_place = r.one_in(2);
  std::vector<Span> in(n);
  for (int i = 0; i < n; i++)
    if (reduces || i == root) in[i] = w.input(i, bytes, element);
  std::vector<char> data(bytes);
  if (reduces) {
    std::vector<const char *> from;
    for (int i = 1; i <= n; i++) from.push_back(in[(root + i) % n].want());
    emu::reduce(type, what, data.data(), from.data(), n, bytes, scaling);
  } else {
    data.assign(in[root].want(), in[root].want() + bytes);
  }
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    a.root = root;
    a.send[i] = bytes;
    a.in[i] = in[i].size ? in[i].address() : nullptr;
    if (reduces && i != root) continue;
    Span out = i == root && in_place ? in[i] : w.output(i, bytes, element);
    a.out[i] = out.address();
    a.recv[i] = bytes;
    memcpy(out.want(), data.data(), bytes);
  }
}

// reduce_one_hop: AllReduce, ReduceScatter or Reduce with whole inputs sent to
// those that reduce.
void Maker::reduce_one_hop() {
  draw_type();
  protocol = Protocol(r.below(2));
  enum { all, scatter, one } kind = r.one_in(3) ? all : r.one_in(2) ? scatter : one;
  static const char *const kinds[] = {", to all", ", scattered", ", to one"};
  shorten();
  op.kernel = (Kernel *)kernel(typed(over("reduce")), std::string(per ? ", short" : "") + kinds[kind]);
  common(1);
  const uint32_t owners = kind == one ? 1u << r.below(n) : (1u << n) - 1;
  std::vector<size_t> part = parts(true);
  if (kind != scatter) part.assign(n, part[0]);
  std::vector<size_t> at(n + 1);
  for (int p = 0; p < n; p++) at[p + 1] = at[p] + (kind == scatter ? part[p] : 0);
  std::vector<Span> in(n), out(n);
  for (int i = 0; i < n; i++) in[i] = w.input(i, kind == scatter ? at[n] : part[0], element);
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    a.owners = owners;
    a.symmetric = kind != one;
    for (int p = 0; p < n; p++) {
      a.in[p] = in[i].address() + at[p];
      a.send[p] = owners >> p & 1 ? part[p] : 0;
    }
    a.recv[i] = owners >> i & 1 ? part[i] : 0;
  }
  const bool in_place = r.one_in(2);
  std::vector<std::vector<char>> result(n);
  for (int i = 0; i < n; i++) {
    if (!(owners >> i & 1)) continue;
    out[i] = in_place ? in[i].part(at[i], part[i]) : w.output(i, part[i], element);
    std::vector<Span> from;
    for (int p = 0; p < n; p++) from.push_back(in[p].part(at[i], part[i]));
    std::vector<char> before(out[i].want(), out[i].want() + part[i]);
    reduce(out[i], from);
    result[i].assign(out[i].want(), out[i].want() + part[i]);
    memcpy(out[i].want(), before.data(), part[i]);  // the others reduce what was there
    op.args[i].out[i] = out[i].address();
  }
  for (int i = 0; i < n; i++)
    if (owners >> i & 1) memcpy(out[i].want(), result[i].data(), part[i]);
}

// allreduce: parts go to owners, which reduce them and send results to targets.
void Maker::allreduce() {
  draw_type();
  const bool simple = protocol == kSimple;
  const uint32_t everyone = (1u << n) - 1;
  uint32_t owners = everyone, targets = everyone;
  if (simple && r.one_in(3)) owners = 1 + r.below(everyone);
  if (simple && r.one_in(2)) targets = r.one_in(2) ? 0 : r.one_in(2) ? 1u << r.below(n) : r.below(everyone + 1);
  op.kernel = (Kernel *)kernel(typed(over("allreduce")), targets == everyone ? "" : targets ? ", to some" : ", scattered");
  common(simple ? 2 : 1);
  std::vector<size_t> part = parts(!simple), at(n + 1);
  for (int p = 0; p < n; p++) at[p + 1] = at[p] + (owners >> p & 1 ? part[p] : part[p] = 0);
  const bool in_place = r.one_in(2);
  std::vector<Span> in(n);
  for (int i = 0; i < n; i++) in[i] = w.input(i, at[n], element);
  std::vector<char> whole(at[n]);
  for (int p = 0; p < n; p++) {
    if (!part[p]) continue;
    std::vector<const char *> from;
    for (int i = 0; i < n; i++) from.push_back(in[i].want() + at[p]);
    emu::reduce(type, what, whole.data() + at[p], from.data(), n, part[p], scaling);
  }
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    a.owners = owners;
    a.targets = targets;
    a.symmetric = 1;
    Span out = in_place ? in[i] : w.output(i, at[n], element);
    for (int p = 0; p < n; p++) {
      a.in[p] = in[i].address() + at[p];
      a.send[p] = a.recv[p] = part[p];
      a.out[p] = out.address() + at[p];
      if (targets >> i & 1 || (!targets && p == i)) memcpy(out.want() + at[p], whole.data() + at[p], part[p]);
    }
  }
}

// combine: every rank reduces memory of its own.
void Maker::combine() {
  draw_type();
  op.kernel = (Kernel *)kernel(typed("combine"));
  protocol = kSimple;
  common(1);
  for (int i = 0; i < n; i++) {
    Args &a = op.args[i];
    const size_t bytes = length(channels);
    std::vector<Span> in;
    for (int p = 0; p < n; p++) {
      in.push_back(w.input(i, bytes, element));
      a.in[p] = in[p].address();
    }
    // An input that overlaps the output must be the same memory.
    Span out = w.output(i, bytes, element);
    if (r.one_in(2)) {
      const int p = int(r.below(n));
      in[p] = out;
      a.in[p] = in[p].address();
    }
    a.out[i] = out.address();
    a.recv[i] = bytes;
    reduce(out, in);
  }
}

// numbers is memory with numbers between -2 and 2 of the type.
Span Maker::numbers(int rank, size_t bytes) {
  Span s = w.output(rank, bytes, element);
  for (size_t i = 0; i < bytes; i += element) store(type, s.want() + i, (float(r.below(4001)) - 2000) / 1000);
  memcpy(s.address(), s.want(), bytes);
  return s;
}

// norm: an AllReduce of sums, added to residuals, whose rows are normalized; or the last of it alone.
void Maker::norm() {
  std::vector<int> normed;
  for (int t : types())
    if (find(std::string("norm_local_") + type_name(t))) normed.push_back(t);
  type = normed[r.below(uint32_t(normed.size()))];
  element = size_of(type);
  const bool local = r.one_in(3);
  protocol = local ? kSimple : kLL;
  const uint32_t blocks = r.below(3);  // of a row, log2
  if (!local) draw_per();
  channels = (1 + r.below(4 >> blocks)) << blocks;
  op.norm = (NormKernel *)kernel(of_type(local ? "norm_local" : "norm_ll"));
  common(1);
  const uint32_t rows = blocks ? channels >> blocks : local ? 1 + r.below(2 * channels) : channels;
  const size_t most = (local ? 10000 : (2 * per * 8) << blocks) / element;
  const size_t row = element * (r.one_in(4) ? most : r.one_in(4) ? 1 + r.below(40) : 1 + r.below(uint32_t(most)));
  const float eps = r.one_in(2) ? 1e-5f : 1.0f;
  const bool in_place = r.one_in(2);
  std::vector<Span> in(n);
  for (int i = 0; i < n; i++) in[i] = numbers(i, rows * row);
  std::vector<std::vector<char>> sum(n, std::vector<char>(rows * row));
  std::vector<const char *> from;
  for (const Span &s : in) from.push_back(s.want());
  for (int i = 0; i < n; i++)
    if (local)
      sum[i].assign(in[i].want(), in[i].want() + rows * row);
    else
      emu::reduce(type, 0, sum[i].data(), from.data(), n, rows * row, scaling);
  const Span first = numbers(0, rows * row), weights = numbers(0, row);
  for (int i = 0; i < n; i++) {
    Span residual = i == 0 ? first : w.output(i, rows * row, element), weight = i == 0 ? weights : w.output(i, row, element);
    if (i > 0) {
      memcpy(residual.address(), first.address(), rows * row);
      memcpy(weight.want(), weights.want(), row);
      memcpy(weight.address(), weights.want(), row);
    }
    Span out = in_place ? in[i] : w.output(i, rows * row, element);
    out.memory->close = type;
    emu::normalize(type, out.want(), residual.want(), sum[i].data(), first.address(), weights.want(), rows, row, eps);
    Args &a = op.args[i];
    a.symmetric = !local;
    a.in[i] = in[i].address();
    a.out[i] = out.address();
    op.norms[i] = {weight.address(), residual.address(), rows, uint32_t(row), eps, blocks};
  }
}

Operation Maker::draw() {
  // Senders that nobody answers run ahead as far as they may.
  if (w.one_way && !r.one_in(8)) {
    channels = 1;
    if (!r.one_in(8)) protocol = w.one_way_over;
    exchange_any();
    return std::move(op);
  }
  switch (r.below(15)) {
    case 12: exchange_direct(); break;
    case 13: norm(); break;
    case 14: chain_root(); break;
    case 0: case 1: case 2: exchange_any(); break;
    case 3: case 4: exchange_even(); break;
    case 5: r.one_in(3) ? relay_root() : chain_root(); break;
    case 6: case 7: reduce_one_hop(); break;
    case 8: case 9: case 10: allreduce(); break;
    default: combine();
  }
  return std::move(op);
}

}  // namespace

Operation make(World &w) { return Maker(w).draw(); }

}  // namespace emu
