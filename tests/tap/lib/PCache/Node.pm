
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Node - how does a test get a cluster with a pool, and where is what?

=head1 DESCRIPTION

A cluster and its pool belong together by the data directory of the cluster.
All pools of a test script lie in one directory on tmpfs, below
$ENV{PCACHE_SHM}, which is removed at the end.

=cut

package PCache::Node;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Find;
use File::Path qw(remove_tree);
use File::Temp qw();
use PCache::Command;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw();

our @EXPORT = qw(
  pool_root
  new_node
  new_standby
  put_back
  add_pool
  pool_dir
  pool_file
  set_directory
  set_mode
  may_go_without
  reload_until
  with_install
  vanilla_install
  has_cache
  is_patched
  major
  seed_random
);

my $pool_root;
my $root_owner;
my %pool_dirs;
my %needs_pool;

# The directory on tmpfs for all pools of this script; the first call makes it.
sub pool_root
{
	if (!defined $pool_root)
	{
		my $parent = $ENV{PCACHE_SHM} // '/dev/shm';

		BAIL_OUT("no directory \"$parent\"") if !-d $parent;
		$pool_root = File::Temp::tempdir('pools-XXXXXX', DIR => $parent);
		$root_owner = $$;
	}
	return $pool_root;
}

# Before the servers are down: Cluster.pm's END block was compiled earlier, so
# it runs later than this one.  A mapped file can be unlinked, though.
END
{
	my $rc = $?;

	if (!defined $root_owner || $root_owner == $$)
	{
		for my $node (grep { defined } values %needs_pool)
		{
			next if !-e $node->logfile || slurp_file($node->logfile) !~ /^(.*WARNING: .*)\n.*The server starts without the persistent cache\./m;
			diag('server "' . $node->name . "\" went without its pool: $1");
			$rc ||= 1;
		}
	}
	if (defined $pool_root && $root_owner == $$)
	{
		chmod 0700, $pool_root;
		remove_tree($pool_root, { safe => 0, error => \my $ignored });
	}
	$? = $rc;
}

=pod

=item new_node(name, %params)

A cluster whose server has the library, with the cache configured and its pool
initialized, not started.

  init            parameters for PostgreSQL::Test::Cluster->init
  libraries       shared_preload_libraries (pg_pcache)
  shared_buffers  default 32MB
  size            of the pool, default as shared_buffers
  directory       of the pool; default below pool_root()
  mode            default planned_restart; undef: configure no cache and make no pool
  init_pool       0: leave it to the first start to make the pool
  conf            more lines for postgresql.conf

=cut

sub new_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%{ $params{init} // {} });
	configure($node, %params);
	return $node;
}

# The settings of new_node(), for a cluster that is initialized and down.
sub configure
{
	my ($node, %params) = @_;
	my $shared_buffers = $params{shared_buffers} // '32MB';
	my $libraries = $params{libraries} // (has_cache() ? 'pg_pcache' : '');
	my $mode = exists $params{mode} ? $params{mode} : 'planned_restart';

	# Nothing that reads or writes pages on its own account.
	$node->append_conf('postgresql.conf', qq{
shared_buffers = $shared_buffers
autovacuum = off
bgwriter_lru_maxpages = 0
max_parallel_workers_per_gather = 0
checkpoint_timeout = 1h
max_wal_size = 1GB
shared_preload_libraries = '$libraries'
});
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	add_pool($node, %params) if defined $mode;
	return;
}

=pod

=item new_standby(name, primary, backup, %params)

A standby of a backup that its primary has, with a pool of its own, not started.

  init      parameters for PostgreSQL::Test::Cluster->init_from_backup, default
            { has_streaming => 1 }
  others    as for add_pool()

=cut

sub new_standby
{
	my ($name, $primary, $backup, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, $backup, %{ $params{init} // { has_streaming => 1 } });
	add_pool($node, %params);
	return $node;
}

=pod

=item add_pool(node, %params)

Initialize a pool for a cluster that is down, and switch the cache on.  Returns the directory of the pool.

  size, directory, mode, init_pool   as for new_node()
  init_options   reference to a list of more options for pg_pcache init

=cut

sub add_pool
{
	my ($node, %params) = @_;
	my $directory = $params{directory} // pool_root() . '/' . $node->name;

	$node->adjust_conf('postgresql.conf', 'pcache.size', $params{size}) if defined $params{size};
	set_directory($node, $directory);
	set_mode($node, $params{mode} // 'planned_restart');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_pcache'")
	  if slurp_file($node->data_dir . '/postgresql.conf') !~ /^shared_preload_libraries = .*pg_pcache/m;
	if ($params{init_pool} // 1)
	{
		my ($rc, $out, $err) = pcache($node, 'init', @{ $params{init_options} // [] });

		BAIL_OUT("pg_pcache init failed: $err") if $rc != 0;
	}
	return $directory;
}

# The directory of a node's pool.
sub pool_dir
{
	my ($node) = @_;
	return $pool_dirs{ $node->data_dir } // pool_root() . '/' . $node->name;
}

# The pool file in it.
sub pool_file
{
	my ($node) = @_;
	return pool_dir($node) . '/pool';
}

# What there is below a directory: size and time of the last change, by name.
sub list_files
{
	my ($top) = @_;
	my %files;

	find(sub {
		my @st = Time::HiRes::lstat $_;
		$files{ substr $File::Find::name, length $top } = "@st[2, 7, 9]";
	}, $top);
	return \%files;
}

# Make the data directory of a cluster that is down what a copy of it is, by
# "cp -a".  Only the few files that differ are copied: there are many.
sub put_back
{
	my ($node, $copy) = @_;
	my $data = $node->data_dir;
	my $old = list_files($copy);
	my $new = list_files($data);

	for (sort { length $b <=> length $a } grep { !exists $old->{$_} } keys %$new)
	{
		-l "$data$_" || !-d "$data$_" ? unlink "$data$_" : rmdir "$data$_";
	}
	for (sort grep { !exists $new->{$_} || $new->{$_} ne $old->{$_} } keys %$old)
	{
		if (-d "$copy$_" && !-l "$copy$_") { mkdir "$data$_", 0700 }
		else { system_or_bail('cp', '-a', '--remove-destination', "$copy$_", "$data$_") }
	}
	# directories have their times last
	for (grep { -d "$copy$_" && !-l "$copy$_" } keys %$old)
	{
		my @st = Time::HiRes::stat "$copy$_";
		Time::HiRes::utime($st[8], $st[9], "$data$_") or die "$data$_: $!";
	}
	unlink "$data/postmaster.pid";
	return;
}

# Change pcache.directory in postgresql.conf; undef takes it out of there.
sub set_directory
{
	my ($node, $directory) = @_;

	$pool_dirs{ $node->data_dir } = $directory;
	$node->adjust_conf('postgresql.conf', 'pcache.directory', undef);
	$node->append_conf('postgresql.conf', "pcache.directory = '$directory'") if defined $directory;
	return;
}

# Change pcache.mode in postgresql.conf; undef takes it out of there.
# The server has to be restarted.  From then on the test fails if it ever starts without
# the pool.
sub set_mode
{
	my ($node, $mode) = @_;

	$node->adjust_conf('postgresql.conf', 'pcache.mode', undef);
	$node->append_conf('postgresql.conf', "pcache.mode = $mode") if defined $mode;
	$needs_pool{ $node->name } = $node if !exists $needs_pool{ $node->name };
	return;
}

# This server may start without its pool: the test is about that.
sub may_go_without
{
	my ($node) = @_;

	$needs_pool{ $node->name } = undef;
	return;
}

# Reload the configuration, and wait until the server has it: a setting is "=", or
# "<>", to this value.  A stop that follows "pg_ctl reload" can overtake it.
sub reload_until
{
	my ($node, $setting, $operator, $value) = @_;

	$node->reload;
	$node->poll_query_until('postgres', "SELECT current_setting('$setting') $operator '$value'")
	  or die "no reload of $setting";
	return;
}

# Is the library there?  Tests of what needs none ask that.
sub has_cache
{
	my ($libdir) = run_command([ 'pg_config', '--pkglibdir' ]);
	return -e "$libdir/pg_pcache.so";
}

# Does the server that is tested load the library by itself?
sub is_patched
{
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
	return slurp_file("$bindir/postgres") =~ /persistent_cache_mode/;
}

# The major version of the server that is tested.
sub major
{
	my ($version) = run_command([ 'pg_config', '--version' ]);
	return $version =~ /^PostgreSQL (\d+)/ ? $1 : die "no version: $version";
}

# The prefix of the installation without the patches, or undef if there is none.
sub vanilla_install
{
	my $bin = $ENV{PCACHE_VANILLA};

	return undef if !defined $bin || !-x "$bin/postgres";
	$bin =~ s{/bin/?$}{};
	return $bin;
}

# Run code with the programs of another installation for this node, given as the
# prefix.  Returns what the code returns.
sub with_install
{
	my ($node, $install, $code) = @_;

	local $node->{_install_path} = $install;
	return $code->();
}

# Have the random numbers of a test be those of a seed, which is told and returned.
sub seed_random
{
	my $seed = $ENV{PCACHE_SEED} // int(rand(2**31));

	srand($seed);
	note("seed: $seed (set PCACHE_SEED to repeat)");
	return $seed;
}

1;
