
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

ServerKind - what differs between servers that have the persistent cache

=head1 SYNOPSIS

  my $server = ServerKind->new($bin, library => 1);
  my %conf = $server->settings($pool, persistent_cache_mode => 'planned_restart', ...);

=head1 DESCRIPTION

There is the patched server, and an unpatched one, of PostgreSQL 15 or newer, that
preloads the library pg_pcache.  torture.pl and walk.pl speak of both by the names that
the patched server has for settings.  Fields:

  library   true if it is an unpatched one
  major     its major version

=cut

package ServerKind;

use strict;
use warnings FATAL => 'all';

use Superblock;

# Events of walk.pl, and parts of the pool that are stored to, that an unpatched server
# does not have.
my %LEFT_OUT = (
	control => 'the library has what it last saw of pg_control beside how far WAL goes',
	seal => 'pages are not sealed while the library runs',
	hotset => 'the copy of the server has no pg_hotset');

# The library's names of settings.  It has no others of the patched server's: it has no
# sealer, and none of its users sets "required", with which a start that was cut off
# would keep the next one from starting.
my %NAME = (persistent_cache_mode => 'pcache.mode');

sub new
{
	my ($class, $bin, %fields) = @_;
	my ($major) = qx("$bin/postgres" --version) =~ /PostgreSQL\) (\d+)/ or die "no server in $bin\n";
	return bless { major => $major, %fields }, $class;
}

# Why this is not for this server, or nothing.
sub left_out { my ($self, $what) = @_; return $self->{library} ? $LEFT_OUT{$what} : undef; }

# Where in the pool it is told how far WAL goes: offset and length.  The library has there
# what it last saw of its cluster.
sub watermark { my ($self) = @_; return $self->{library} ? (8192 + 256, 256) : (8192, 64); }

# Settings for postgresql.conf of a cluster with its pool in that directory.
sub settings
{
	my ($self, $pool, %conf) = @_;
	return %conf if !$self->{library};
	my %of_library = map { $NAME{$_} => $conf{$_} } grep { defined $conf{$_} } keys %NAME;
	return ($self->plain_settings(%conf), %of_library, shared_preload_libraries => "'pg_pcache'", 'pcache.directory' => "'$pool'");
}

# The same without the cache, and without what else only the patched server has.
sub plain_settings
{
	my ($self, %conf) = @_;
	delete @conf{ grep { /^persistent_cache/ } keys %conf };
	delete $conf{wal_sync_method} if ($conf{wal_sync_method} // '') =~ /^(?:pmem|open_direct)$/;
	$conf{recovery_prefetch} = 'try' if ($conf{recovery_prefetch} // '') eq 'read';
	delete $conf{io_method} if $self->{major} < 18;
	delete $conf{debug_io_direct} if $self->{major} < 16;
	return %conf;
}

# On the command line: a start without the pool.
sub without_pool { my ($self) = @_; return $self->{library} ? 'shared_preload_libraries=' : 'persistent_cache_mode=off'; }

# A data directory that was copied has its pool there.
sub name_pool
{
	my ($self, $data, $pool) = @_;
	if ($self->{library})
	{
		open(my $fh, '>>', "$data/postgresql.conf") or die "$data/postgresql.conf: $!";
		print $fh "pcache.directory = '$pool'\n";
		close $fh or die "$data/postgresql.conf: $!";
		return;
	}
	return if -l "$data/pg_pcache" && readlink "$data/pg_pcache" eq $pool;
	-l "$data/pg_pcache" ? unlink("$data/pg_pcache") : rmdir("$data/pg_pcache");
	symlink($pool, "$data/pg_pcache") or die "$data/pg_pcache: $!";
	return;
}

# Does a cluster know its pool?  By a setting, by PGDATA's record, or behind the link
# of a copy.
sub knows_pool
{
	my ($self, $data) = @_;
	return $self->{library} || -e "$data/pg_pcache/pool" || -e "$data/pg_pcache.state";
}

# Why the next start is to go without a pool file that is in order, or nothing.
sub without
{
	my ($self, $data, $pool) = @_;
	return 'not known to PGDATA' if !$self->knows_pool($data);
	return 'not used, because the last start was cut off' if $self->{library} && was_cut_off($pool);
	return;
}

# Options of initdb.
sub checksums { my ($self, $on) = @_; return $on ? '-k' : $self->{major} < 18 ? () : '--no-data-checksums'; }

# What amcheck has for the indexes c, with pg_index: a hash by access method.
sub index_checks
{
	my ($self) = @_;
	return (
		btree => $self->{major} < 17 ? 'bt_index_check(c.oid, true)' : 'bt_index_check(c.oid, true, indisunique)',
		$self->{major} < 18 ? () : (gin => 'gin_index_check(c.oid)'));
}

1;
