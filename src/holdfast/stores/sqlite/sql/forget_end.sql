DELETE FROM holdfast_finished WHERE id = :id
