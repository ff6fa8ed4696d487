
# Copyright (c) 2026, the persistent-cache developers

# From a stock server to one with the cache, and the first start is warm: by
# pg_upgrade from each PostgreSQL that Debian's packages have installed here, in each
# of its modes, and with the data directory of a stock server of this version.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;

my $directory = PostgreSQL::Test::Utils::tempdir;

# pg_upgrade wants one that it can write to.
chdir $directory or die;

# The versions that have what this test needs.
sub is_usable
{
	my ($major) = @_;

	return $major >= 15 && -e "/usr/share/postgresql/$major/extension/pg_buffercache.control" &&
	  !grep { !-x "/usr/lib/postgresql/$major/bin/$_" } qw(postgres initdb pg_ctl psql pg_dumpall);
}

my @majors = grep { is_usable($_) } map { m{/(\d+)$} } sort glob '/usr/lib/postgresql/*';
my $vanilla = vanilla_install();

plan skip_all => 'There is no stock server here' if !@majors && !defined $vanilla;

# A stock server with tables of which two are in shared buffers, and lists of these
# pages: a CSV file, and what autoprewarm has left at the stop.
sub stock_node
{
	my ($name, $install) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $install);

	$node->init(extra => ['--data-checksums']);
	$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nshared_preload_libraries = 'pg_prewarm'\n");
	$node->start;
	$node->safe_psql('postgres', <<'EOF');
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE TABLE hot AS SELECT i, repeat('x', 1500) AS filler FROM generate_series(1, 1000) i;
CREATE INDEX hot_i ON hot (i);
CREATE TABLE cold AS SELECT * FROM hot;
VACUUM (FREEZE, ANALYZE);
EOF
	$node->stop;
	# without what these have left
	unlink $node->data_dir . '/autoprewarm.blocks';
	$node->start;
	$node->safe_psql('postgres', "SELECT pg_prewarm(r) FROM (VALUES ('hot'::regclass), ('hot_i')) v (r), generate_series(1, 3)");
	write_csv($node, "$directory/$name.csv");
	$node->stop;
	return $node;
}

sub write_csv
{
	my ($node, $path) = @_;

	open(my $fh, '>:raw', $path) or die "$path: $!";
	print $fh $node->safe_psql('postgres', 'COPY (SELECT * FROM pg_buffercache) TO STDOUT (FORMAT csv, HEADER)'), "\n";
	close $fh or die $!;
	return;
}

# The first start with the cache, after the pool was filled by a list, is warm.
sub starts_warm
{
	my ($node, $name, $list) = @_;
	my ($result, $offset, $outcome);

	$result = verb_json($node, 'rebuild', '--reset', '--warm-from-files', "--list=$list");
	is($result->{rc}, 0, "$name: exit status") or diag($result->{stderr});
	cmp_ok($result->{warm_from_files}{system_catalogs}, '>', 0, "$name: catalogs are left out");
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start") or diag($outcome->{reason});
	is($outcome->{kept}, $result->{warm_from_files}{read}, "$name: pages kept");
	is($node->safe_psql('postgres', <<'EOF'), "hot 200\nhot_i 5", "$name: what was hot is here");
SELECT relname || ' ' || count(*) FROM pg_buffercache b JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
WHERE relname ~ '^(hot|cold)' AND relforknumber = 0 GROUP BY relname ORDER BY relname
EOF
	# The data directory of a stock server has its statistics.
	$node->safe_psql('postgres', 'SELECT pg_stat_reset()');
	is($node->safe_psql('postgres', "SELECT count(filler) FROM hot; SELECT pg_stat_force_next_flush()"), "1000\n", "$name: contents");
	is($node->safe_psql('postgres', "SELECT heap_blks_read || ' ' || heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'hot'"),
		'0 200', "$name: nothing of the table is read");
	$node->stop;
	return;
}

# ---------------------------------------------------------------------------
# pg_upgrade.
# ---------------------------------------------------------------------------
foreach my $major (@majors)
{
	my $install = "/usr/lib/postgresql/$major";
	my $old = stock_node("stock_$major", $install);

	foreach my $mode (qw(copy link swap))
	{
		my $name = "$major, $mode";
		my $new = new_node("from_${major}_$mode", mode => undef, init => { extra => ['--data-checksums'] });
		my $bin = $new->config_data('--bindir');
		my $copy = "$directory/$major-$mode";

		PostgreSQL::Test::RecursiveCopy::copypath($old->data_dir, $copy);
		chmod 0700, $copy;
		command_ok(
			[   'pg_upgrade', '--no-sync', "--$mode", '-d' => $copy, '-D' => $new->data_dir,
				'-b' => "$install/bin", '-B' => $bin, '-s' => $new->host, '-p' => $old->port, '-P' => $new->port
			],
			"$name: pg_upgrade");
		add_pool($new);
		starts_warm($new, "$name, CSV", "$directory/stock_$major.csv");
		starts_warm($new, "$name, autoprewarm", "$copy/autoprewarm.blocks");
	}
}

# ---------------------------------------------------------------------------
# The data directory itself, of a stock server of this version.
# ---------------------------------------------------------------------------
if (defined $vanilla)
{
	my $stock = stock_node('stock', $vanilla);
	my $node = PostgreSQL::Test::Cluster->new('taken_over');

	PostgreSQL::Test::RecursiveCopy::copypath($stock->data_dir, $node->data_dir);
	chmod 0700, $node->data_dir;
	# It names the directory that this is a copy of.
	unlink $node->data_dir . '/postmaster.opts' or die $!;
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', undef);
	$node->append_conf('postgresql.conf', 'port = ' . $node->port);
	add_pool($node);
	starts_warm($node, 'taken over, CSV', "$directory/stock.csv");
	starts_warm($node, 'taken over, autoprewarm', $stock->data_dir . '/autoprewarm.blocks');
}

done_testing();
