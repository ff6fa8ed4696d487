
# Copyright (c) 2026, the persistent-cache developers

# recovery_prefetch = read: recovery reads ahead into shared buffers.  Whatever
# the settings, the data files are those that recovery leaves without it, byte by
# byte.  Pages that are torn, damaged or kept are left alone.

use strict;
use warnings FATAL => 'all';

use File::Path qw(make_path remove_tree);
use File::Temp qw();
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tmp = PostgreSQL::Test::Utils::tempdir();
my $small = "shared_buffers = 16MB\n";

# Can this machine do it?  io_uring may be forbidden, and O_DIRECT unsupported.
my (%can, $probe);
{
	$probe = new_node('probe', mode => undef);
	for my $setting ('io_method = io_uring', "debug_io_direct = 'data'")
	{
		$probe->append_conf('postgresql.conf', "io_method = worker\ndebug_io_direct = ''\n$setting\n");
		$can{$setting} = $probe->start(fail_ok => 1);
		$probe->stop('immediate') if $can{$setting};
		note("$setting: " . ($can{$setting} ? 'possible' : 'not possible here'));
	}
}

plan(skip_all => 'direct I/O is not possible here') if !$can{"debug_io_direct = 'data'"};

my $direct = "recovery_prefetch = read\ndebug_io_direct = data\nio_method";
my @variants = (
	[ 'try', 'recovery_prefetch = try' ],
	[ 'try, direct I/O', "recovery_prefetch = try\ndebug_io_direct = data" ],
	[ 'read, buffered I/O', "recovery_prefetch = read\nio_method = worker" ],
	[ 'read, sync', "$direct = sync" ],
	[ 'read, one handle', "$direct = worker\nio_max_concurrency = 1" ],
	[ 'read, worker', "$direct = worker" ],
	[ 'read, one worker, 16 MB', "$direct = worker\nio_workers = 1\n$small" ],
	[ 'read, far ahead', "$direct = worker\nmaintenance_io_concurrency = 1000\nio_max_concurrency = 64" ]);
push @variants,
  [ 'read, io_uring', "$direct = io_uring" ],
  [ 'read, io_uring, 16 MB', "$direct = io_uring\n$small" ]
  if $can{'io_method = io_uring'};

crash_recovery();
archive_recovery();
torn_pages();
damaged_pages();
kept_pages();
hot_standby();
done_testing();

# Tables with each kind of index, 12 MB, in a database of their own.
sub fill
{
	my ($node, $db) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, q{
CREATE TABLE t (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 80);
INSERT INTO t SELECT i, i % 100, repeat(md5(i::text), 5) FROM generate_series(1, 40000) i;
CREATE INDEX ON t (v);
CREATE TABLE k (id int, a int[], p point);
INSERT INTO k SELECT i, ARRAY[i, i % 7], point(i, -i) FROM generate_series(1, 4000) i;
CREATE INDEX ON k USING gin (a);
CREATE INDEX ON k USING gist (p);
CREATE INDEX ON k USING spgist (p);
CREATE INDEX ON k USING hash (id);
CREATE INDEX ON k USING brin (id);
CREATE TABLE gone AS SELECT * FROM t;
CREATE TABLE cut AS SELECT * FROM t;
CREATE TABLE shrinks AS SELECT * FROM t;
CREATE SEQUENCE s;
VACUUM (FREEZE);
});
	return;
}

# Changes all over these tables, and relations that are truncated, dropped and
# made again between them.
sub change
{
	my ($node, $db) = @_;

	$node->safe_psql($db, $_) for (
		q{UPDATE t SET v = v + 1 WHERE id % 17 = 3},
		q{INSERT INTO k SELECT i, ARRAY[i, i % 5], point(i, i) FROM generate_series(4001, 5000) i},
		q{UPDATE gone SET v = 0 WHERE id % 50 = 0},
		q{UPDATE cut SET v = 0 WHERE id % 50 = 0},
		q{UPDATE shrinks SET v = 0 WHERE id % 50 = 0},
		q{DROP TABLE gone},
		q{DELETE FROM t WHERE id % 11 = 5},
		q{TRUNCATE cut},
		q{DELETE FROM shrinks WHERE id > 15000},
		q{VACUUM shrinks},
		q{INSERT INTO cut SELECT * FROM t WHERE id % 3 = 0},
		q{INSERT INTO shrinks SELECT * FROM t WHERE id > 30000},
		q{DELETE FROM k WHERE id % 3 = 0},
		q{VACUUM t, k},
		q{CREATE TABLE fresh AS SELECT * FROM t WHERE id < 5000},
		q{CREATE INDEX ON fresh (v)},
		q{UPDATE fresh SET v = v + 1},
		q{BEGIN; CREATE TABLE never AS SELECT * FROM t; UPDATE never SET v = 0; ROLLBACK},
		q{REINDEX INDEX t_pkey},
		q{SELECT count(nextval('s')) FROM generate_series(1, 200)},
		q{UPDATE t SET v = v - 1 WHERE id % 13 = 1});
	return;
}

sub save { my ($node, $copy) = @_; system_or_bail('cp', '-a', $node->data_dir, $copy); return; }
sub save_to { system_or_bail('cp', '-a', @_); unlink "$_[1]/postmaster.pid"; return; }

# What all files of these databases hold, as a reference to a hash; the server is
# down.  Left out are the catalogs, whose pages sessions change.
sub files_of
{
	my ($node, @oids) = @_;
	my %held;

	for my $oid (@oids)
	{
		for my $file (glob($node->data_dir . "/base/$oid/*"), glob($node->data_dir . "/pg_tblspc/*/*/$oid/*"))
		{
			my ($name) = $file =~ m{([^/]+)$};
			next if $name !~ /^(\d+)/ || $1 < 16384;
			$held{"$oid/$name"} = slurp_file($file);
		}
	}
	return \%held;
}

# Do two of these agree?  The first block that differs is named.
sub same_files
{
	my ($got, $expected, $name) = @_;
	my @differ;

	for my $file (sort keys %{ { %$got, %$expected } })
	{
		if (!defined $got->{$file} || !defined $expected->{$file}) { push @differ, "$file is there only once"; next }
		next if $got->{$file} eq $expected->{$file};
		my $size = length $got->{$file} > length $expected->{$file} ? length $got->{$file} : length $expected->{$file};
		my ($block) = grep { substr($got->{$file} . ' ' x $size, $_ * 8192, 8192) ne substr($expected->{$file} . ' ' x $size, $_ * 8192, 8192) } 0 .. $size / 8192;
		push @differ, "$file, block $block";
	}
	ok(!@differ, "$name: the files are those of a recovery without it") or diag(join("\n", @differ));
	return;
}

# What the last recovery counted: prefetch, hit, skip_fpw.
sub counted
{
	my ($node) = @_;
	return split /\|/, $node->safe_psql('postgres', 'SELECT prefetch, hit, skip_fpw FROM pg_stat_recovery_prefetch');
}

sub quiet_log
{
	my ($node, $offset, $name) = @_;
	my $log = substr slurp_file($node->logfile), $offset;

	$log =~ s/^.*unexpected directory entry.*found in pg_tblspc$//mg;    # one in place, as without all this
	unlike($log, qr/invalid page|page verification failed|(?:WARNING|ERROR|PANIC):/, "$name: nothing is wrong in the log");
	return;
}

# A primary that crashed.  Without full-page images redo reads what it changes.
sub crash_recovery
{
	my $node = new_node('primary', mode => undef, conf => "full_page_writes = off\nwal_level = replica\nallow_in_place_tablespaces = on");
	my $copy = "$tmp/crashed";
	my ($oid, $expected, %prefetched);

	$node->start;
	fill($node, 'd');
	$oid = $node->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname = 'd'});
	$node->safe_psql('postgres', 'CHECKPOINT');
	change($node, 'd');
	$node->stop('immediate');
	save($node, $copy);

	for my $variant ([ 'off', 'recovery_prefetch = off' ], @variants)
	{
		my ($name, $conf) = @$variant;
		my $offset = log_offset($node);

		put_back($node, $copy);
		$node->append_conf('postgresql.conf', $conf);
		$name = "crash recovery, $name";
		ok($node->start(fail_ok => 1), "$name: it ends") or next;
		$prefetched{ $variant->[0] } = (counted($node))[0];
		quiet_log($node, $offset, $name);
		$node->stop;
		if (!defined $expected) { $expected = files_of($node, $oid); next }
		same_files(files_of($node, $oid), $expected, $name);
	}
	note("prefetched, $_: $prefetched{$_}") for sort keys %prefetched;
	cmp_ok(keys %$expected, '>', 15, 'the database has files');
	for (sort keys %prefetched)
	{
		# neither can the kernel be advised then, nor can pages be read ahead
		if (/^off|^try, direct|sync|one handle/) { is($prefetched{$_}, 0, "$_: nothing is read ahead") }
		else { cmp_ok($prefetched{$_}, '>', 500, "$_: blocks are read ahead") }
	}
	return;
}

# All of it from a base backup, over checkpoints, with databases that are copied,
# moved and dropped.
sub archive_recovery
{
	my $primary = new_node('archived', mode => undef, init => { has_archiving => 1, allows_streaming => 1 },
		conf => "full_page_writes = off\nallow_in_place_tablespaces = on");
	my $expected;

	$primary->start;
	$primary->safe_psql('postgres', q{CREATE TABLESPACE ts LOCATION ''});
	fill($primary, 'd');
	$primary->backup('base');
	change($primary, 'd');
	$primary->safe_psql('postgres', 'CREATE DATABASE e TEMPLATE d STRATEGY file_copy');
	$primary->safe_psql('postgres', 'CREATE DATABASE f TEMPLATE d STRATEGY wal_log');
	$primary->safe_psql('postgres', 'CREATE DATABASE dropped TEMPLATE d STRATEGY wal_log');
	$primary->safe_psql($_, 'UPDATE t SET v = v + 1 WHERE id % 7 = 1') for qw(e f dropped d);
	$primary->safe_psql('postgres', 'DROP DATABASE dropped');
	$primary->safe_psql('postgres', 'ALTER DATABASE e SET TABLESPACE ts');
	$primary->safe_psql($_, 'UPDATE t SET v = v + 1 WHERE id % 5 = 1') for qw(e f d);
	$primary->safe_psql($_, 'VACUUM t') for qw(e f d);
	my @oids = split /\n/, $primary->safe_psql('postgres', q{SELECT oid FROM pg_database WHERE datname IN ('d', 'e', 'f')});
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$primary->stop;

	for my $variant ([ 'off', 'recovery_prefetch = off' ], grep { $_->[0] =~ /worker|io_uring/ } @variants)
	{
		my ($name, $conf) = @$variant;
		my $node = PostgreSQL::Test::Cluster->new('restored_' . ($name =~ s/\W+/_/gr));

		$node->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
		$node->append_conf('postgresql.conf', "$conf\narchive_mode = off\nhot_standby = off");
		$node->start;
		$node->wait_for_log(qr/database system is ready to accept connections/);
		$name = "archive recovery, $name";
		quiet_log($node, 0, $name);
		cmp_ok((counted($node))[0], '>', 500, "$name: blocks are read ahead") if $name =~ /read/;
		$node->stop;
		if (!defined $expected) { $expected = files_of($node, @oids) }
		else { same_files(files_of($node, @oids), $expected, $name) }
		$node->clean_node;
	}
	return;
}

# Overwrite the second half of blocks of a relation, as a crash of the host may.
sub tear
{
	my ($file, @blocks) = @_;

	open my $fh, '+<:raw', $file or die "$file: $!";
	for (@blocks)
	{
		seek $fh, $_ * 8192 + 4096, 0 or die;
		print $fh "\xaa" x 4096 or die;
	}
	close $fh or die;
	return;
}

# Images repair such pages; records behind them refer to the same pages, and
# must not lead to a read before.
sub torn_pages
{
	my $node = new_node('torn', mode => undef, conf => 'full_page_writes = on');
	my ($file, $blocks, $expected, $offset);

	$node->start;
	$node->safe_psql('postgres', q{
CREATE TABLE t (id int, v int, filler text) WITH (fillfactor = 50);
INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 20000) i;
VACUUM (FREEZE) t;
CHECKPOINT;
UPDATE t SET v = 1;
});
	$file = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t')});
	$blocks = $node->safe_psql('postgres', q{SELECT pg_relation_size('t') / 8192});
	$expected = checksums($node, tables => ['t']);
	$node->stop('immediate');

	tear($file, 0 .. $blocks - 1);
	$offset = log_offset($node);
	$node->append_conf('postgresql.conf', "$direct = worker");
	$node->start;
	quiet_log($node, $offset, 'torn pages');
	cmp_ok((counted($node))[2], '>', $blocks, 'torn pages: they came with images');
	is($node->safe_psql('postgres', 'SELECT coalesce(sum(checksum_failures), 0) FROM pg_stat_database'), '0', 'torn pages: no checksum failure is counted');
	is(checksums($node, tables => ['t']), $expected, 'torn pages: repaired');
	$node->stop;
	return;
}

# A page that is damaged and has no image: an error if redo needs it, and
# otherwise none.
sub damaged_pages
{
	my $primary = new_node('sound', mode => undef, init => { has_archiving => 1, allows_streaming => 1 },
		conf => 'full_page_writes = off');
	my ($path, $target, $node, $log);

	$primary->start;
	$primary->safe_psql('postgres', q{
CREATE TABLE t AS SELECT i AS id, 0 AS v FROM generate_series(1, 5000) i;
CREATE TABLE before AS SELECT i AS id, 0 AS v FROM generate_series(1, 5000) i;
VACUUM (FREEZE) t, before;
});
	$primary->backup('base');
	$path = $primary->safe_psql('postgres', q{SELECT pg_relation_filepath('t')});
	$primary->safe_psql('postgres', 'UPDATE before SET v = 1 WHERE id % 10 = 0');
	$target = $primary->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
	$primary->safe_psql('postgres', 'UPDATE t SET v = 1 WHERE id % 10 = 0');
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$primary->stop;

	for my $ends ("recovery_target_lsn = '$target'\nrecovery_target_action = promote\nrecovery_target_inclusive = off", '')
	{
		my $needed = $ends eq '';

		$node = PostgreSQL::Test::Cluster->new($needed ? 'needed' : 'not_needed');
		$node->init_from_backup($primary, 'base', has_restoring => 1, standby => 0);
		$node->append_conf('postgresql.conf', "$direct = worker\narchive_mode = off\nhot_standby = off\nrestart_after_crash = off\n$ends");
		tear($node->data_dir . "/$path", 0 .. 3);
		if ($needed)
		{
			$log = start_and_fail($node, 'damaged page that redo needs');
			like($log, qr/FATAL:  invalid page in block \d of relation "?\Q$path\E.*\n.*WAL redo/, 'damaged page: redo reports it');
		}
		else
		{
			$node->start;
			$node->wait_for_log(qr/database system is ready to accept connections/);
			$log = slurp_file($node->logfile);
		}
		like($log, qr/LOG:  invalid page in block 0 of relation "?\Q$path\E/, 'damaged page: the read ahead tells the log');
		next if $needed;
		is($node->safe_psql('postgres', 'SELECT count(*) FROM before WHERE v = 1'), '500', 'damaged page: recovery went to its target');
		my ($rc, $out, $err) = $node->psql('postgres', 'SELECT count(*) FROM t');
		like($err, qr/ERROR:  invalid page in block 0 of relation/, 'damaged page: it is not valid, and a query says so');
		$node->stop;
	}
	return;
}

# With a pool that has kept pages, others are read ahead.
sub kept_pages
{
	return if !has_cache();
	my $node = new_node('kept', mode => 'always', shared_buffers => '64MB', conf => "full_page_writes = off\nwal_level = replica");
	my ($expected, $offset, $outcome, $prefetch, $hit);

	$node->start;
	load_data($node);
	warm_up($node);
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 7 = 1 AND id > 10000');
	$expected = checksums($node, tables => [LOGGED]);
	kill_seen($node);

	$offset = log_offset($node);
	$node->append_conf('postgresql.conf', "$direct = worker");
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', 'kept pages: a warm start') or diag($outcome->{reason} // '');
	($prefetch, $hit) = counted($node);
	cmp_ok($prefetch, '>', 0, 'kept pages: what was changed is read ahead');
	cmp_ok($hit, '>', 0, 'kept pages: others are found');
	is(checksums($node, tables => [LOGGED]), $expected, 'kept pages: contents are right');
	$node->stop;
	return;
}

# A standby with few buffers, a query that holds a pin which replay of VACUUM
# waits for, and the setting changed meanwhile.
sub hot_standby
{
	my $primary = new_node('leader', mode => undef, init => { allows_streaming => 1 }, conf => "full_page_writes = off\n");
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	my ($cursor, $where);

	$primary->start;
	$primary->safe_psql('postgres', q{
CREATE EXTENSION amcheck;
CREATE TABLE t (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 80);
INSERT INTO t SELECT i, 0, repeat(md5(i::text), 15) FROM generate_series(1, 60000) i;
CREATE TABLE pinned (a int, b int);
INSERT INTO pinned SELECT i % 3, 0 FROM generate_series(1, 20) i;
VACUUM (FREEZE);
});
	$primary->backup('base');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "$direct = worker\nmax_standby_streaming_delay = -1\n$small");
	$standby->start;

	$primary->safe_psql('postgres', 'BEGIN; INSERT INTO pinned VALUES (1, 0); ROLLBACK; BEGIN; LOCK pinned; COMMIT');
	$primary->wait_for_replay_catchup($standby);
	$cursor = $standby->background_psql('postgres', on_error_stop => 1);
	$cursor->query_safe('BEGIN; DECLARE c CURSOR FOR SELECT b FROM pinned');
	$cursor->query_safe('FETCH FORWARD FROM c');
	$primary->safe_psql('postgres', 'VACUUM (FREEZE) pinned');
	$primary->safe_psql('postgres', "UPDATE t SET v = v + 1 WHERE id % 20 = $_") for 1, 2;
	ok($standby->poll_query_until('postgres', q{SELECT wait_event = 'BufferPin' FROM pg_stat_activity WHERE backend_type = 'startup'}), 'standby: replay waits for the pin');
	$cursor->query_safe('COMMIT');
	$cursor->quit;

	for my $round (3 .. 8)
	{
		$standby->append_conf('postgresql.conf', 'recovery_prefetch = ' . qw(try off read)[ $round % 3 ]);
		$standby->append_conf('postgresql.conf', 'maintenance_io_concurrency = ' . qw(16 0 64)[ $round / 3 % 3 ]);
		$standby->reload;
		$primary->safe_psql('postgres', "UPDATE t SET v = v + 1 WHERE id % 20 = $round");
		$primary->safe_psql('postgres', "DELETE FROM t WHERE id % 200 = $round");
		$primary->safe_psql('postgres', 'VACUUM t') if $round % 2;
		$primary->safe_psql('postgres', 'CHECKPOINT') if $round == 5;
	}
	$primary->wait_for_replay_catchup($standby);
	is($standby->safe_psql('postgres', 'SELECT sum(hashtextextended(t::text, 0)) FROM t'),
		$primary->safe_psql('postgres', 'SELECT sum(hashtextextended(t::text, 0)) FROM t'), 'standby: the same rows');
	is($standby->safe_psql('postgres', q{SELECT bt_index_check('t_pkey', true)}), '', 'standby: the index agrees with its table');
	cmp_ok((counted($standby))[0], '>', 1000, 'standby: blocks are read ahead');
	$standby->promote;
	is($standby->safe_psql('postgres', q{UPDATE t SET v = v + 1 WHERE id = 100; SELECT count(*) FROM t WHERE id = 100}), '1', 'standby: promoted');
	quiet_log($standby, 0, 'standby');
	$standby->stop;
	$primary->stop;
	return;
}
