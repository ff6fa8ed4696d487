
# Copyright (c) 2026, the persistent-cache developers

# The postmaster is killed while it takes up its pool.  What it leaves is not taken for what
# it is not: the next start has what one without the library has.

use strict;
use warnings FATAL => 'all';

use PCacheModule;
use PCacheMoment;
use PostgreSQL::Test::Utils;
use Test::More;

my $why_not = why_no_start_kills();
plan skip_all => $why_not if $why_not;

my $node = module_node('main', mode => 'always', shared_buffers => '32MB');
my $pool = pool_file($node);

sub set { my ($name, $value) = @_; $node->append_conf('postgresql.conf', "$name = $value"); return }

# What a table has that is larger than half of the buffers, beside the usual ones.
sub answers
{
	return eval { $node->safe_psql('postgres', 'SELECT count(*), sum(v), sum(length(s)) FROM big') . "\n" . contents($node) } // "$@";
}

# A test: a start that has what one without the library has.  Returns the outcome.
sub starts_right
{
	my ($name) = @_;
	my $right = oracle($node, code => \&answers);
	my $offset = log_offset($node);

	$node->start;
	is(answers(), $right, "$name: contents are right");
	return start_outcome($node, $offset);
}

$node->start;
load_tables($node);
$node->safe_psql('postgres', q{
CREATE TABLE big AS SELECT i, 1 AS v, repeat('x', 200) AS s FROM generate_series(1, 80000) i;
VACUUM big});

# ---------------------------------------------------------------- fewer buffers, and more again
# Behind the ledger of the last stop there are entries of the one before.
$node->safe_psql('postgres', q{SELECT pg_prewarm('big')});
$node->stop;
set('shared_buffers', '16MB');
$node->start;
$node->safe_psql('postgres', 'UPDATE big SET v = 2; VACUUM big');
answers();
$node->stop;
set('shared_buffers', '32MB');
kill_start($node, 'more buffers', 'PCacheFillTable');
is(read_superblock($pool)->{state}, STATE_CLEAN, 'more buffers: the ledger is that of the last stop');
is(read_superblock($pool)->{slots_used}, 2048, 'more buffers: and has as many slots');
my $outcome = starts_right('more buffers');
is($outcome->{start}, 'warm', 'more buffers: warm') or diag($outcome->{reason});
is($outcome->{kept}, $outcome->{saved}, 'more buffers: all of the ledger is kept');

# ---------------------------------------------------------------- and then a part of the pool is lost
# pg_control still says that the cluster was shut down, so pages of zeros would be kept.
for my $case ([ 'cut off', sub { truncate $pool, $_[0] or die } ],
	[ 'a hole', sub { system_or_bail('fallocate', '-p', '-o' => $_[0], '-l' => 4096, $pool) } ])
{
	my ($name, $code) = @$case;

	$node->safe_psql('postgres', q{SELECT pg_prewarm('t_toast')});
	my $filenode = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('t_toast')});
	$node->stop;
	my ($slot) = sort { $b <=> $a } sealed_slots($pool, sub { $_[0]->{rel_number} == $filenode && $_[0]->{fork_number} == 0 });
	kill_start($node, $name, 'fork_process');
	is(read_superblock($pool)->{state}, STATE_DIRTY, "$name: the pool was in use");
	$code->(read_superblock($pool)->{blocks_offset} + $slot * BLCKSZ);
	$outcome = starts_right($name);
	is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason});
	cmp_ok($outcome->{kept} // 0, '>', 0, "$name: the rest is kept");
}

# ---------------------------------------------------------------- a larger pool
# The server was killed, and a start that is cold for another reason makes the pool larger.
answers();
kill_seen($node);
set('shared_buffers', '40MB');
set('restore_command', "'false'");
append_to_file($node->data_dir . '/recovery.signal', '');
kill_start($node, 'a larger pool', 'PCacheSuperblockAdopt');
is(read_superblock($pool)->{capacity}, 5120, 'a larger pool: it is larger');
is(read_superblock($pool)->{state}, STATE_EMPTY, 'a larger pool: no header is where the server had it');
unlink $node->data_dir . '/recovery.signal';
$outcome = starts_right('a larger pool');
is($outcome->{start}, 'cold', 'a larger pool: cold');
like($outcome->{reason} // '', qr/^the pool is empty$/, 'a larger pool: for the right reason');
$node->stop;

# A start that keeps the pages makes it larger, and is killed on the way, or when it has.
for my $case ([ '48MB', 'PCacheDescriptorStore', 'cold' ], [ '56MB', 'PCacheSuperblockAdopt', 'warm' ])
{
	my ($size, $function, $start) = @$case;
	my $name = "$size, killed in $function";

	$node->start;
	$node->safe_psql('postgres', q{SELECT pg_prewarm('big')});
	answers();
	$node->stop;
	set('shared_buffers', $size);
	kill_start($node, $name, $function);
	is(read_superblock($pool)->{state}, $start eq 'warm' ? STATE_CLEAN : STATE_EMPTY, "$name: what the pool says");
	$outcome = starts_right($name);
	is($outcome->{start}, $start, "$name: $start") or diag($outcome->{reason});
	$node->stop;
}
done_testing();
