"""Whether rows of padding along an axis change the results of the other rows, operator by operator."""
