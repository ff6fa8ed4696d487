
# Copyright (c) 2026, the persistent-cache developers

# From a stock server to one with the cache, which a list of the old server warms up: by
# pg_upgrade from each PostgreSQL that Debian's packages have installed here, in each
# of its modes, and with the data directory of a stock server of this version.
#
# The minor release that is installed may be newer than what this server can upgrade
# from.  The unpatched server must then refuse for the same reason.

use strict;
use warnings FATAL => 'all';

use File::Copy 'copy';
use File::Glob 'bsd_glob';
use IPC::Run 'run';
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
	copy($node->data_dir . '/autoprewarm.blocks', "$directory/$name.blocks") or die $!;
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

# A list of what was hot warms the first life with the cache up, and the next start is warm.
sub list_warms
{
	my ($node, $name, $list) = @_;
	my ($offset, $outcome);

	unlink pool_file($node);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION IF NOT EXISTS pg_hotset');
	cmp_ok($node->safe_psql('postgres', "SELECT read + here FROM pg_hotset_load('$list')"), '>=', 205, "$name: pages are read");
	$node->stop;
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start") or diag($outcome->{reason});
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

# Runs the pg_upgrade that belongs to the new node on a copy of the old data directory.
# Returns why it failed, or undef: the errors that its logs have, or what it printed if
# there are none, without what differs from one new node to another.
sub pg_upgrade
{
	my ($old, $new, $mode) = @_;
	my $bin = $new->config_data('--bindir');
	my $copy = $new->basedir . '/old';
	my ($output, %errors);

	PostgreSQL::Test::RecursiveCopy::copypath($old->data_dir, $copy);
	chmod 0700, $copy;
	return undef if run(
		[   "$bin/pg_upgrade", '--no-sync', "--$mode", '-d' => $copy, '-D' => $new->data_dir,
			'-b' => $old->config_data('--bindir'), '-B' => $bin, '-s' => $new->host, '-p' => $old->port, '-P' => $new->port
		],
		'>&' => \$output);
	foreach my $log (bsd_glob $new->data_dir . '/pg_upgrade_output.d/*/log/*.log')
	{
		$errors{$_} = 1 foreach slurp_file($log) =~ /ERROR: +(.*)/g;
	}
	$output =~ s/\Q$_\E//g foreach $new->basedir, $bin;
	$output =~ s/\d{8}T\d{6}\.\d+//g;
	return join("\n", sort keys %errors) || $output;
}

# Returns a new node that has the old one's data, with a pool; or nothing if the
# unpatched server cannot upgrade from the old one either.
sub upgraded
{
	my ($old, $mode, $name) = @_;
	my %init = (extra => ['--data-checksums']);
	my $node_name = $name =~ s/\W+/_/gr;
	my $new = new_node("from_$node_name", mode => undef, init => \%init);
	my $why = pg_upgrade($old, $new, $mode);

	if (defined $why && defined $vanilla)
	{
		my $unpatched = PostgreSQL::Test::Cluster->new("unpatched_from_$node_name", install_path => $vanilla);

		$unpatched->init(%init);
		my $theirs = pg_upgrade($old, $unpatched, $mode);
		if (is($why, $theirs, "$name: pg_upgrade fails as that of the unpatched server does"))
		{
			note($why);
			return;
		}
	}
	is($why, undef, "$name: pg_upgrade");
	return if defined $why;
	add_pool($new);
	return $new;
}

# From the minor releases of November 2026 on, an older major keeps a version of each new
# column among its options.  Without it, a table is as one that was made before.  The
# condition is that of docs/upgrade.md.
sub forget_column_versions
{
	my ($node) = @_;

	$node->start;
	$node->safe_psql($_, <<'EOF') foreach qw(postgres template1);
UPDATE pg_attribute SET attoptions = nullif(ARRAY(SELECT o FROM unnest(attoptions) o WHERE o !~ '^pg_attver='), '{}')
WHERE attrelid >= 16384 AND attoptions::text LIKE '%pg_attver=%'
EOF
	$node->stop;
	return;
}

foreach my $major (@majors)
{
	my $old = stock_node("stock_$major", "/usr/lib/postgresql/$major");
	my $as_it_is = upgraded($old, 'copy', "$major, as it is");

	forget_column_versions($old) if !defined $as_it_is;
	foreach my $mode (qw(copy link swap))
	{
	  SKIP:
		{
			my $name = "$major, $mode";
			my $new = ($mode eq 'copy' ? $as_it_is : undef) // upgraded($old, $mode, $name);

			skip "$name: pg_upgrade fails", 1 if !defined $new;
			list_warms($new, "$name, CSV", "$directory/stock_$major.csv");
			list_warms($new, "$name, autoprewarm", "$directory/stock_$major.blocks");
		}
	}
}
SKIP:
{
	skip 'there is no stock server in /usr/lib/postgresql', 1 if !@majors;
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
	# the patched server loads the library by itself
	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', undef);
	list_warms($node, 'taken over, CSV', "$directory/stock.csv");
	list_warms($node, 'taken over, autoprewarm', "$directory/stock.blocks");
}

done_testing();
